"""Process trees by /proc: who descends from whom, what they cost, and ending what a benchmark started."""

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from regroup.workers.os.proc_environ import arguments, variables

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def parents() -> dict[int, int]:
    """Process id → parent id, of every process now alive."""
    table: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            table[int(entry.name)] = int(fields[1])
    return table


def descendants(roots: Iterable[int]) -> set[int]:
    """The processes `roots` and everything below them now."""
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
    """User and system time used so far by the processes that are alive, children already reaped included."""
    total = 0.0
    for pid in pids:
        if fields := _stat(pid):
            total += sum(int(ticks) for ticks in fields[11:15]) * _TICK_S
    return total


def command_line(pid: int) -> str:
    """The arguments of a process, or an empty string when it is gone."""
    try:
        return b" ".join(arguments(pid)).decode(errors="replace").strip()
    except OSError:
        return ""


def environment(pid: int) -> dict[str, str]:
    """The environment a process was started with, or nothing when it is gone."""
    try:
        found = variables(pid)
    except OSError:
        return {}
    pairs = (item.decode(errors="replace").partition("=") for item in found)
    return {name: value for name, _, value in pairs}


def marked(name: str, value: str) -> set[int]:
    """Processes that were started with the environment variable `name` set to `value`, or inherited it."""
    return {pid for pid in parents() if environment(pid).get(name) == value}


def alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    fields = _stat(pid)
    return fields is not None and fields[0] not in ("Z", "X")


def end(pids: Iterable[int], grace_s: float = 5.0) -> None:
    """SIGTERM, then SIGKILL what is still there after `grace_s`; returns when all are gone.

    Raises:
        RuntimeError: a process outlived SIGKILL by 10 s.
    """
    left = _signal(set(pids), signal.SIGTERM, grace_s)
    left = _signal(left, signal.SIGKILL, 10.0)
    if left:
        raise RuntimeError(f"processes outlived SIGKILL: {sorted(left)}")


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
    """Fields of /proc/PID/stat from the state on: state, ppid, …; utime is [11], cstime [14]."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
