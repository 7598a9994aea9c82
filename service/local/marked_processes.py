"""Processes that one command started, found by a mark that they inherit: kill them, and prove that none is left."""

import contextlib
import os
import signal
import time
from pathlib import Path

from regroup.service.local import api_token, processes

MARK = "REGROUP_STARTED_BY"
"""Environment variable that every process under the command inherits."""
_COMPILE_CACHE = "TORCHINDUCTOR_CACHE_DIR"
_DASHBOARD = "REGROUP_RAY_DASHBOARD"


def marked_environment(state: Path) -> dict[str, str]:
    """Return the environment of a service whose files are all below `state`.

    The environment has the mark, and a cache folder for `torch.compile` below `state` unless the user has set one. It
    has no token of another server. Its local Ray starts without the dashboard.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in api_token.VARIABLES}
    return {_COMPILE_CACHE: str(state / "compiled"), **inherited, _DASHBOARD: "false", MARK: str(state)}


def find_marked(mark: str) -> dict[int, str]:
    """Return the live processes that have `mark` in their environment or command line, as pid → command."""
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
            environment = processes.variables(int(entry.name))
            command = b" ".join(processes.arguments(int(entry.name))).decode(errors="replace").strip()
            alive = (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            if alive and (mark in command or f"{MARK}={mark}".encode() in environment):
                found[int(entry.name)] = command[:120]
    return found


def stop_marked(mark: str, *, timeout_s: float) -> dict[int, str]:
    """Wait for the processes with `mark` to exit, then kill the rest.

    Returns:
        The processes that had to be killed, as pid → command.

    Raises:
        RuntimeError: a process is alive even after SIGKILL.
    """
    late = _wait_for_exit(mark, timeout_s)
    for pid in late:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    stuck = _wait_for_exit(mark, 10.0) if late else {}
    if stuck:
        raise RuntimeError("still alive after SIGKILL: " + "; ".join(f"{pid} {cmd}" for pid, cmd in stuck.items()))
    return late


def _wait_for_exit(mark: str, timeout_s: float) -> dict[int, str]:
    deadline = time.monotonic() + timeout_s
    while (alive := find_marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return alive
