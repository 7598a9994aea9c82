"""Kill a subtree of processes, with proof of death."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from regroup.workers.os.procfs import descendants, descendants_by_scan, is_zombie

_JANITORS = (b"multiprocessing.resource_tracker", b"torch_shm_manager")
"""Words in the command lines of processes that remove named semaphores and shared memory after their users end."""
_JANITORS_END_S = 1.0
_RESCAN_S = 0.02
"""Longest wait for killed processes before the next scan."""
_DEEPER_S = 0.3
"""Children that live this long after SIGKILL keep their own children, so the scan includes those too."""


def kill(pids: Iterable[int]) -> None:
    """SIGKILL each process that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def kill_subtree(
    root: int, spare: frozenset[int], deadline_s: float, living: Callable[[], list[int]] | None = None
) -> list[int]:
    """Kill all processes below `root` except `spare` and their descendants; return the pids that outlive the deadline.

    The scan repeats until it finds no process alive. A process that forks while it is being killed leaves a child, and
    the next scan finds that child under the subreaper. The scan never enters `spare`: otherwise a process that they
    fork during the scan could be mistaken for another's. Their descendants stay below them if they are subreapers.
    Processes that only clean up after others are killed last. Otherwise the shared memory that they would remove
    would stay forever.

    Args:
        root: Process whose descendants are killed.
        spare: Processes to leave alone.
        deadline_s: Seconds after which the call returns the survivors.
        living: For a caller that is `root` itself and a subreaper: returns its children that still have a live thread.
            A killed process leaves its descendants to `root`. So no descendant exists once none of them lives, which
            no scan of /proc could prove better. Only below slowly dying children does the call scan. The caller reaps
            the dead.
    """
    began_s = time.monotonic()
    patience = _Patience(min(_JANITORS_END_S, deadline_s / 2))
    while True:
        now_s = time.monotonic()
        scans = living is None
        alive = _alive_below(root, spare) if living is None else [pid for pid in living() if pid not in spare]
        if alive and not scans and now_s - began_s > _DEEPER_S:
            scans, alive = True, list({*alive, *_alive_below(root, spare)})
        if not alive or now_s - began_s > deadline_s:
            return alive
        kill(patience.without_janitors(alive))
        time.sleep(0.001)
        while scans and any(_exists(pid) for pid in alive) and time.monotonic() - now_s < _RESCAN_S:
            time.sleep(0.001)


def _alive_below(root: int, spare: frozenset[int]) -> list[int]:
    found = [pid for pid in descendants(root, spare) if not is_zombie(pid)]
    return found or [pid for pid in descendants_by_scan(root, spare) if not is_zombie(pid)]


class _Patience:
    """Grace period of janitors after all other processes are dead."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._is_janitor_of: dict[int, bool] = {}
        self._alone_since_s: float | None = None

    def without_janitors(self, alive: list[int]) -> list[int]:
        others = [pid for pid in alive if not self._is_janitor(pid)]
        if others:
            return others
        now_s = time.monotonic()
        self._alone_since_s = self._alone_since_s or now_s
        return alive if now_s - self._alone_since_s > self._patience_s else []

    def _is_janitor(self, pid: int) -> bool:
        if pid not in self._is_janitor_of:
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                command = b""
            self._is_janitor_of[pid] = any(name in command for name in _JANITORS)
        return self._is_janitor_of[pid]


def _exists(pid: int) -> bool:
    """Return True if the process exists. A zombie exists until it is reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
