"""A real server with a real local Ray of two nodes, shared by the tests of this folder."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.api.client import Client
from regroup.api.schemas import Job

START_S = 120.0
JOB_S = 240.0


class Served:
    """`regroup serve` as a process of its own, on a state folder of its own."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.client = Client("http://127.0.0.1:1")
        self._process: subprocess.Popen[bytes] | None = None
        self._log = state.parent / "server.log"

    def start(self) -> None:
        """Serve, and wait until it does."""
        command = [sys.executable, "-m", "regroup.api.cli", "serve", "--state-dir", str(self.state), "--port", "0",
                   "--local-nodes", "2", "--slots-per-node", "2", "--allow-faults"]
        with self._log.open("ab") as log:
            begin = log.tell()
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        ready = eventually(lambda: self._ready_line(begin), START_S)
        self.client = Client(ready.split(" at ")[1].split(",")[0].split()[0])

    def kill(self) -> None:
        """SIGKILL the server alone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def down(self) -> str:
        """End everything."""
        command = [sys.executable, "-m", "regroup.api.cli", "down", "--state-dir", str(self.state)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
        if self._process is not None:
            self._process.wait(10)
        return done.stdout

    def log(self) -> str:
        """What the server printed."""
        return self._log.read_text(errors="replace")

    def processes(self, title: str) -> list[int]:
        """Processes of this cluster whose command line begins with `title`."""
        needle = str(self.state).encode()
        found: list[int] = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (folder / "cmdline").read_bytes().decode(errors="replace").startswith(title) and needle in (
                    folder / "environ").read_bytes():
                    found.append(int(folder.name))
        return found

    def run(self, spec: dict[str, Any], within_s: float = JOB_S) -> Job:
        """Submit a job and wait for its end."""
        job = self.client.submit(spec)
        return self.client.wait(job.id, timeout_s=within_s)

    def _ready_line(self, begin: int) -> str:
        assert self._process is not None
        text = self._log.read_bytes()[begin:].decode(errors="replace")
        assert self._process.poll() is None, f"the server ended: {text}"
        return next((line for line in text.splitlines() if line.startswith("regroup serves at")), "")


def eventually(look: Callable[[], Any], within_s: float = 60.0, every_s: float = 0.05) -> Any:
    """The first true value of `look` within a deadline."""
    deadline = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"nothing after {within_s} s: {look}"
        time.sleep(every_s)
    return found


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server for the whole session."""
    server = Served(tmp_path_factory.mktemp("served") / "state")
    server.start()
    yield server
    server.down()


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with some real text: a few modules of the standard library."""
    folder = tmp_path_factory.mktemp("text")
    for name in ("argparse", "ast", "calendar", "dataclasses", "datetime", "difflib", "enum", "heapq"):
        shutil.copy(Path(sysconfig.get_path("stdlib")) / f"{name}.py", folder)
    return folder


@pytest.fixture(scope="session")
def spec(text: Path) -> Callable[..., dict[str, Any]]:
    """A small job on 2 × 2 ranks; keyword arguments replace whole parts of it."""

    def build(name: str, *, steps: int = 24, **parts: Any) -> dict[str, Any]:
        return {
            "name": name,
            "workload": {
                "kind": "builtin",
                "model": {"dim": 32, "layers": 2, "heads": 2},
                "data": {"train": [str(text)], "validation": [str(text / "heapq.py")]},
            },
            "training": {"global_batch": 8, "micro_batch": 2, "sequence": 64, "steps": steps},
            "layout": {"dp": 4},
            "checkpoint": {"every_steps": 8},
            **parts,
        }

    return build


@pytest.fixture(scope="session")
def control(served: Served, spec: Callable[..., dict[str, Any]]) -> Job:
    """The undisturbed run that every disturbed one is compared with."""
    job = served.run(spec("control"))
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    return job


def assert_same_result(served: Served, job: Job, control: Job) -> None:
    """Bitwise equal parameters, the same samples, and a ledger without gap or duplicate."""
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    assert job.digest.parameters == control.digest.parameters
    assert job.digest.samples == control.digest.samples
    ledger = served.client.ledger(job.id)
    assert ledger.exact, ledger.problems
    assert ledger.steps == control.step


def end(pid: int) -> None:
    """SIGKILL one process."""
    os.kill(pid, signal.SIGKILL)
