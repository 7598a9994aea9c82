"""Process trees from /proc: descendants, CPU time, and the end of the processes that a benchmark started."""

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from regroup.workers.os.proc_environ import arguments, variables

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def parents() -> dict[int, int]:
    """Return process id → parent id for each process that is alive."""
    table: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            table[int(entry.name)] = int(fields[1])
    return table


def descendants(roots: Iterable[int]) -> set[int]:
    """Return the processes `roots` and all their current descendants."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    todo = list(roots)
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children.get(pid, [])
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU seconds (user and system) of the processes that are alive and of their reaped children."""
    total = 0.0
    for pid in pids:
        if fields := _stat(pid):
            total += sum(int(ticks) for ticks in fields[11:15]) * _TICK_S
    return total


def command_line(pid: int) -> str:
    """Return the arguments of a process, or an empty string if it has exited."""
    try:
        return b" ".join(arguments(pid)).decode(errors="replace").strip()
    except OSError:
        return ""


def environment(pid: int) -> dict[str, str]:
    """Return the environment that a process started with, or an empty dictionary if it has exited."""
    try:
        found = variables(pid)
    except OSError:
        return {}
    pairs = (item.decode(errors="replace").partition("=") for item in found)
    return {name: value for name, _, value in pairs}


def marked(name: str, value: str) -> set[int]:
    """Return the processes that have the environment variable `name` set to `value`, directly or by inheritance."""
    return {pid for pid in parents() if environment(pid).get(name) == value}


def alive(pid: int) -> bool:
    """Return True if the process exists and is not a zombie."""
    fields = _stat(pid)
    return fields is not None and fields[0] not in ("Z", "X")


def end(pids: Iterable[int], grace_s: float = 5.0) -> None:
    """Send SIGTERM, then SIGKILL to the processes still alive after `grace_s` seconds, and wait until all have exited.

    Raises:
        RuntimeError: a process was still alive 10 s after SIGKILL.
    """
    left = _signal(set(pids), signal.SIGTERM, grace_s)
    left = _signal(left, signal.SIGKILL, 10.0)
    if left:
        raise RuntimeError(f"processes are still alive after SIGKILL: {sorted(left)}")


def _signal(pids: set[int], signum: int, patience_s: float) -> set[int]:
    for pid in pids:
        try:
            os.kill(pid, signum)
        except ProcessLookupError:
            continue
    deadline = time.monotonic() + patience_s
    while (left := {pid for pid in pids if alive(pid)}) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from `state` on: state, ppid, …; utime is [11], cstime [14]."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
