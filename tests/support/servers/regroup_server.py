"""`regroup serve` as a process, with a real local Ray of two nodes."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regroup.api.client.client import Client
from regroup.api.client.connection.access_token import find_token
from regroup.api.schemas.jobs import Job
from regroup.service.local import ray_cluster
from regroup.service.settings import Settings
from regroup.workers.os.proc_environ import arguments
from tests.support.checks.descriptors import Snapshot

START_S = 120.0
JOB_S = 240.0
_AGENT_TITLES = ("ray::NodeAgent", "ray::StandbyAgent")
"""Titles of the processes of agents. Ray shows a standby that became an agent under either name."""


class Server:
    """`regroup serve` as a process with its own state folder."""

    def __init__(
        self,
        state: Path,
        *,
        nodes: int = 2,
        python: str | Path = sys.executable,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self.state = state
        self._nodes, self._python, self._cwd = nodes, str(python), cwd
        self._arguments = list(arguments)
        # A local node stands for a machine: when a test ends it, it does not return.
        self._environment = {**os.environ, "REGROUP_RESTART_LOCAL_NODES": "false", **(environment or {})}
        self.url = "http://127.0.0.1:1"
        """Address of the server, set when it is ready."""
        self.client = Client(self.url)
        self._process: subprocess.Popen[bytes] | None = None
        self._log = state.parent / "server.log"

    def start(self) -> None:
        """Start the server, and wait until it is ready."""
        command = [
            self._python,
            "-m",
            "regroup.api.cli",
            "serve",
            "--state-dir",
            str(self.state),
            "--port",
            "0",
            "--local-nodes",
            str(self._nodes),
            "--slots-per-node",
            "2",
            "--allow-faults",
            *self._arguments,
        ]
        with self._log.open("ab") as log:
            begin = log.tell()
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self._cwd, env=self._environment
            )
        ready = eventually(lambda: self._ready_line(begin), START_S)
        self.url = ready.split(" at ")[1].split(",")[0].split()[0]
        self.client = Client(self.url)

    def get(self, path: str) -> str:
        """Return the text at a path of the server, as a program without the client gets it."""
        request = urllib.request.Request(f"{self.url}{path}", headers=token_header(self.url))
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read().decode()

    @property
    def pid(self) -> int:
        """Process id of the server."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Send SIGKILL to the server only."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def wait(self, timeout_s: float) -> int:
        """Wait until the server ends, and return its exit code."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def down(self) -> str:
        """Stop the server and its cluster."""
        command = [self._python, "-m", "regroup.api.cli", "down", "--state-dir", str(self.state)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
        if self._process is not None:
            self._process.wait(10)
        return done.stdout

    def log(self) -> str:
        """Return the output of the server."""
        return self._log.read_text(errors="replace")

    def processes(self, *titles: str) -> list[int]:
        """Return the processes of this cluster whose command line begins with one of the titles."""
        needle = str(self.state).encode()
        found: list[int] = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                pid = int(folder.name)
                if _title(pid).startswith(titles) and needle in (folder / "environ").read_bytes():
                    found.append(pid)
        return found

    def agents(self) -> list[int]:
        """Return the agents that have formed ranks.

        A title alone does not identify them. Ray shows a standby that became an agent under either name, and idle
        standbys have the same titles. Idle standbys have no shared memory of ranks.
        """
        titled = self.processes(*_AGENT_TITLES)
        return [pid for pid in titled if any("memfd:regroup-" in target for target in _descriptors(pid))]

    def join(self) -> str:
        """Add a node like those at the start; return its name."""
        return ray_cluster.add_node(Settings(state_dir=self.state, local_nodes=self._nodes, local_gpus_per_node=0))

    def count_open(self) -> int:
        """Return the number of nodes on which ranks may be placed."""
        return sum(
            node.node_id is not None and not node.is_draining and node.health.status == "open"
            for node in self.client.nodes()
        )

    def run(self, spec: dict[str, Any], within_s: float = JOB_S) -> Job:
        """Submit a job and wait for its end."""
        job = self.client.submit(spec)
        return self.client.wait(job.id, timeout_s=within_s)

    def _ready_line(self, begin: int) -> str:
        assert self._process is not None
        text = self._log.read_bytes()[begin:].decode(errors="replace")
        assert self._process.poll() is None, f"the server ended: {text}"
        return next((line for line in text.splitlines() if line.startswith("regroup serves at")), "")


def token_header(url: str) -> dict[str, str]:
    """Return the header that requests of other programs need."""
    return {"Authorization": f"Bearer {find_token(url)}"}


def _descriptors(pid: int) -> list[str]:
    found: list[str] = []
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(str(entry.readlink()))
    return found


def parent(pid: int) -> int:
    """Return the process id of the parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def agent_of(rank: int) -> int:
    """Return the agent of a rank's process: it has the other end of a socket of the rank's zygote.

    It is not always the parent of the zygote, which may be a fork of the node's template.
    """
    ends = {pid for found in Snapshot().of(parent(rank)) if found.kind == "socket" for pid in found.others}
    (agent,) = [pid for pid in ends if _title(pid).startswith(_AGENT_TITLES)]
    return agent


def called(title: str) -> list[int]:
    """Return the processes of this machine whose command line begins with `title`."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if _title(int(folder.name)).startswith(title):
                found.append(int(folder.name))
    return found


def _title(pid: int) -> str:
    return b" ".join(arguments(pid)).decode(errors="replace")


def eventually(condition: Callable[[], Any], within_s: float = 60.0, every_s: float = 0.1) -> Any:
    """Poll `condition` until it returns a true value, and return it; fail after a deadline."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"nothing after {within_s} s: {condition}"
        time.sleep(every_s)
    return found


def assert_same_result(served: Server, job: Job, control: Job) -> None:
    """Check that parameters are bitwise equal, samples are the same, and the ledger has no gap or duplicate."""
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    assert job.digest.parameters == control.digest.parameters
    assert job.digest.samples == control.digest.samples
    ledger = served.client.ledger(job.id)
    assert ledger.exact, ledger.problems
    assert ledger.steps == control.step


def end(pid: int) -> None:
    """Send SIGKILL to a process."""
    os.kill(pid, signal.SIGKILL)
