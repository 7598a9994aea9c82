"""Processes that this machine's control plane started, told apart from all others and from reused pids (Linux)."""

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
    """One process, past or present: a pid is used again, a pid with its start time is not."""

    pid: int
    started: int
    """Clock ticks after boot."""
    name: str = ""

    @property
    def is_alive(self) -> bool:
        """It exists and is no zombie."""
        now = look(self.pid)
        return now is not None and now.started == self.started


def look(pid: int) -> Process | None:
    """The process of this pid; None if there is none or it is a zombie."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")  # a name may hold spaces and brackets
    fields = rest.split()
    return None if fields[0] in "ZX" else Process(pid, int(fields[19]), name)


def marked(variable: str, value: str) -> list[Process]:
    """Processes whose environment at exec held `variable=value`, however they have detached since."""
    needle = f"{variable}={value}".encode()
    found: list[Process] = []
    for pid in _pids():
        with contextlib.suppress(OSError):
            if pid != os.getpid() and needle in variables(pid):
                process = look(pid)
                if process is not None:
                    found.append(process)
    return found


def command(process: Process) -> list[bytes]:
    """The words of its command line; none if it is gone."""
    with contextlib.suppress(OSError):
        return arguments(process.pid)
    return []


def files(process: Process) -> list[str]:
    """What its open descriptors stand for; nothing if it is gone."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        for entry in (_PROC / str(process.pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(os.readlink(entry))
    return found


def with_descendants(roots: Iterable[Process]) -> set[Process]:
    """The living among `roots`, and everything below them."""
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
            below = (look(pid) for pid in children.get(process.pid, ()))
            pending += [child for child in below if child is not None]
    return found


def end(process: Process, patience_s: float) -> bool:
    """Ask with SIGTERM, then kill. Returns whether it ended by itself."""
    _send(process, signal.SIGTERM)
    deadline = time.monotonic() + patience_s
    while process.is_alive and time.monotonic() < deadline:
        time.sleep(0.02)
    if not process.is_alive:
        return True
    kill([process])
    return False


def kill(processes: Iterable[Process], within_s: float = 10.0) -> None:
    """SIGKILL, and proof of death.

    Raises:
        StillRunningError: some are there after `within_s` seconds.
    """
    left = list(processes)
    for process in left:
        _send(process, signal.SIGKILL)
    deadline = time.monotonic() + within_s
    while left := [process for process in left if process.is_alive]:
        if time.monotonic() > deadline:
            names = ", ".join(f"{process.name} ({process.pid})" for process in left)
            raise StillRunningError(f"still running {within_s:.0f} s after SIGKILL: {names}")
        time.sleep(0.02)


def send(processes: Iterable[Process], number: signal.Signals) -> None:
    """A signal to each that still lives."""
    for process in processes:
        _send(process, number)


def _send(process: Process, number: signal.Signals) -> None:
    if process.is_alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())
