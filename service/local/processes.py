"""Processes that this machine's control plane started, identified even if a pid is reused (Linux)."""

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from regroup.service.domain.errors import RegroupError
from regroup.workers.os.proc_environ import arguments, variables

_PROC = Path("/proc")


class StillRunningError(RegroupError):
    """Processes outlived SIGKILL."""


@dataclass(frozen=True)
class Process:
    """One process, running or ended. The system reuses a pid, but never a pid with the same start time."""

    pid: int
    started: int
    """Start time in clock ticks after boot."""
    name: str = ""

    @property
    def is_alive(self) -> bool:
        """True while the process runs; False for a zombie."""
        now = find_process(self.pid)
        return now is not None and now.started == self.started


def find_process(pid: int) -> Process | None:
    """Return the process with this pid; None if there is none or it is a zombie."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")  # a name may contain spaces and brackets
    fields = rest.split()
    return None if fields[0] in "ZX" else Process(pid, int(fields[19]), name)


def parent_pid(process: Process) -> int | None:
    """Return the pid of the parent; None if the process has ended."""
    with contextlib.suppress(OSError):
        return int((_PROC / str(process.pid) / "stat").read_text().rpartition(")")[2].split()[1])
    return None


def find_marked(variable: str, value: str) -> list[Process]:
    """Return the processes whose environment at exec had `variable=value`, including detached ones."""
    needle = f"{variable}={value}".encode()
    found: list[Process] = []
    for pid in _pids():
        with contextlib.suppress(OSError):
            if pid != os.getpid() and needle in variables(pid):
                process = find_process(pid)
                if process is not None:
                    found.append(process)
    return found


def command_line(process: Process) -> list[bytes]:
    """Return the arguments of the command line; empty if the process has ended."""
    with contextlib.suppress(OSError):
        return arguments(process.pid)
    return []


def open_files(process: Process) -> list[str]:
    """Return the targets of the open descriptors; empty if the process has ended."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        for entry in (_PROC / str(process.pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(os.readlink(entry))
    return found


def with_descendants(roots: Iterable[Process]) -> set[Process]:
    """Return those of `roots` that are alive, and all their descendants."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        with contextlib.suppress(OSError):
            parent = int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(pid)
    found: set[Process] = set()
    pending = [process for process in roots if process.is_alive]
    while pending:
        process = pending.pop()
        if process not in found:
            found.add(process)
            below = (find_process(pid) for pid in children.get(process.pid, ()))
            pending += [child for child in below if child is not None]
    return found


def stop(process: Process, timeout_s: float) -> bool:
    """Send SIGTERM, then SIGKILL after `timeout_s`. Return True if the process exited before that."""
    _send(process, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while process.is_alive and time.monotonic() < deadline:
        time.sleep(0.02)
    if not process.is_alive:
        return True
    kill([process])
    return False


def kill(processes: Iterable[Process], timeout_s: float = 10.0) -> None:
    """Send SIGKILL and wait until all processes have ended.

    Raises:
        StillRunningError: processes are alive after `timeout_s`.
    """
    left = list(processes)
    for process in left:
        _send(process, signal.SIGKILL)
    deadline = time.monotonic() + timeout_s
    while left := [process for process in left if process.is_alive]:
        if time.monotonic() > deadline:
            names = ", ".join(f"{process.name} ({process.pid})" for process in left)
            raise StillRunningError(f"still running {timeout_s:.0f} s after SIGKILL: {names}")
        time.sleep(0.02)


def send(processes: Iterable[Process], number: signal.Signals) -> None:
    """Send a signal to each process that is alive."""
    for process in processes:
        _send(process, number)


def _send(process: Process, number: signal.Signals) -> None:
    if process.is_alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())
