"""Processes that one command started, found by the mark they inherit: to end them, and to show that none is left."""

import contextlib
import os
import signal
import time
from pathlib import Path

from regroup.service.local import processes

MARK = "REGROUP_STARTED_BY"
"""Environment variable that every process under the command inherits."""
_COMPILED = "TORCHINDUCTOR_CACHE_DIR"


def environment_below(state: Path) -> dict[str, str]:
    """Of a service that one command starts, and whose whole life is under `state`: the mark, and a place there for what
    torch.compile keeps, unless whoever types the command has one."""
    return {_COMPILED: str(state / "compiled"), **os.environ, MARK: str(state)}


def marked(mark: str) -> dict[int, str]:
    """Live processes that carry `mark` in their environment or command line: pid → command."""
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):  # it ended while we looked, or is another user's
            environment = processes.variables(int(entry.name))
            command = b" ".join(processes.arguments(int(entry.name))).decode(errors="replace").strip()
            alive = (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            if alive and (mark in command or f"{MARK}={mark}".encode() in environment):
                found[int(entry.name)] = command[:120]
    return found


def end_marked(mark: str, *, patience_s: float) -> dict[int, str]:
    """Wait for what carries `mark` to end, then kill the rest; returns what had to be killed.

    Raises:
        RuntimeError: something is alive even after SIGKILL.
    """
    late = _wait_for_end(mark, patience_s)
    for pid in late:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    stuck = _wait_for_end(mark, 10.0) if late else {}
    if stuck:
        raise RuntimeError("still alive after SIGKILL: " + "; ".join(f"{pid} {cmd}" for pid, cmd in stuck.items()))
    return late


def _wait_for_end(mark: str, within_s: float) -> dict[int, str]:
    deadline = time.monotonic() + within_s
    while (alive := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return alive
