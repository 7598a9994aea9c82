"""Leftovers of a test: processes, descriptors, shared memory."""

import contextlib
import os
import signal
import time
import uuid
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.os.proc_environ import arguments, variables

SESSION_VARIABLE = "REGROUP_TEST_SESSION"
SESSION = uuid.uuid4().hex
"""Every process that a test starts inherits this variable, even if it is detached. Leftovers are found by it."""


_SHARED = "/dev/shm/"
_DATABASE = "PostgreSQL."
"""Prefix of the segments of a database server. It keeps some that none of its processes has mapped."""
_outlived = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    os.environ[SESSION_VARIABLE] = SESSION
    config.stash[_outlived] = []


@dataclass(frozen=True)
class Held:
    """Processes, descriptors and shared memory of the test session at one moment."""

    processes: Mapping[int, str]
    """Command line of every process that this session started, directly or not, by pid."""
    descriptors: frozenset[str]
    """Open files of the test process, as `fd -> target`."""
    shared_memory: frozenset[str]
    """Names under /dev/shm, without those that tests of another session are using."""

    def beyond(self, before: "Held") -> list[str]:
        """Return one line for each thing held now and not before.

        Processes that an earlier process started since do not count: a server of the whole session starts and ends
        standbys in its cluster.
        """
        new = {pid: line for pid, line in self.processes.items() if pid not in before.processes}
        return [
            *(f"process {pid}: {line}" for pid, line in new.items() if not before.processes.keys() & _ancestors(pid)),
            *(f"descriptor {name}" for name in sorted(self.descriptors - before.descriptors)),
            *(f"shared memory /dev/shm/{name}" for name in sorted(self.shared_memory - before.shared_memory)),
        ]


def held() -> Held:
    """Return what the session holds now, from /proc and /dev/shm."""
    return Held(_session_processes(), _descriptors(), _shared_memory())


def leaked_since(before: Held, within_s: float = 5.0, *, also_descriptors: bool = True) -> list[str]:
    """Return what is held in addition to `before` after at most `within_s` seconds; return early when nothing is."""
    deadline = time.monotonic() + within_s

    def inspect() -> list[str]:
        return [line for line in held().beyond(before) if also_descriptors or not line.startswith("descriptor ")]

    while (leaked := inspect()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return leaked


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """Fail the test if it leaves a process, descriptor or shared memory behind."""
    before = held()
    yield
    if leaked := leaked_since(before):
        pytest.fail("left behind:\n  " + "\n  ".join(leaked), pytrace=False)


@contextlib.contextmanager
def no_process_remains() -> Generator[None]:
    """Fail if the block leaves a process or shared memory behind.

    The block may span several tests. pytest itself opens descriptors between tests, so descriptors do not count.
    """
    before = held()
    yield
    left = leaked_since(before, also_descriptors=False)
    assert not left, "left behind:\n  " + "\n  ".join(left)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Kill processes that outlived the tests, and fail the run with their names."""
    deadline = time.monotonic() + 5
    while (left := _session_processes()) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    outlived = session.config.stash[_outlived]
    outlived += [f"{pid}: {line}" for pid, line in left.items()]
    if outlived:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    getattr(session.config, "workeroutput", {})["outlived"] = outlived


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect the processes that outlived a worker. With xdist, each worker is a session of its own."""
    node.config.stash[_outlived] += getattr(node, "workeroutput", {}).get("outlived", [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if outlived := config.stash.get(_outlived, []):
        terminalreporter.section("processes that outlived the tests (killed now)", red=True)
        for line in outlived:
            terminalreporter.write_line(line)


def _session_processes() -> dict[int, str]:
    needle = f"{SESSION_VARIABLE}={SESSION}".encode()
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        with contextlib.suppress(OSError):
            if pid == os.getpid() or needle not in variables(pid):
                continue
            if (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                continue
            line = b" ".join(arguments(pid)).decode(errors="replace").strip()
            if "multiprocessing.resource_tracker" not in line:  # ends with the test process by itself
                found[pid] = line[:200]
    return found


def _shared_memory() -> frozenset[str]:
    names = {path.name for path in Path("/dev/shm").iterdir()}
    if not names:
        return frozenset()
    elsewhere = _in_use_elsewhere()
    if any(name.startswith(_DATABASE) for name in elsewhere):
        elsewhere |= {name for name in names if name.startswith(_DATABASE)}
    return frozenset(names - elsewhere)


def _in_use_elsewhere() -> set[str]:
    mark, ours = f"{SESSION_VARIABLE}=".encode(), f"{SESSION_VARIABLE}={SESSION}".encode()
    found: set[str] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (pid := int(folder.name)) == os.getpid():
                continue
            of_tests = [each for each in variables(pid) if each.startswith(mark)]
            if of_tests and ours not in of_tests:
                targets = [line.split(maxsplit=5)[-1] for line in (folder / "maps").read_text().splitlines()]
                targets += [str(link.readlink()) for link in (folder / "fd").iterdir()]
                found |= {target.removeprefix(_SHARED) for target in targets if target.startswith(_SHARED)}
    return found


def _ancestors(pid: int) -> set[int]:
    found: set[int] = set()
    with contextlib.suppress(OSError):
        while (pid := int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])) > 1:
            found.add(pid)
    return found


def _descriptors() -> frozenset[str]:
    names: set[str] = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(link.readlink())
            if not target.startswith(f"/proc/{os.getpid()}"):
                names.add(f"{link.name} -> {target}")
    return frozenset(names)
