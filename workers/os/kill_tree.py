"""The end of a subtree of processes, with proof."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from regroup.workers.os.procfs import descendants, descendants_by_scan, is_zombie

_JANITORS = (b"multiprocessing.resource_tracker", b"torch_shm_manager")
"""In the command lines of processes that remove named semaphores and shared memory when their users are gone."""
_JANITORS_END_S = 1.0
_LOOK_AGAIN_S = 0.02
"""So long whoever was killed is waited for before the next look."""
_DEEPER_S = 0.3
"""Children that live so long after SIGKILL do not leave theirs to us: those are looked for, too."""


def kill(pids: Iterable[int]) -> None:
    """SIGKILL each process that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def kill_subtree(
    root: int, spare: frozenset[int], deadline_s: float, living: Callable[[], list[int]] | None = None
) -> list[int]:
    """End everything below `root` but `spare` and what is below them; return pids that outlive the deadline.

    Repeats until a look finds nothing alive: a process that forks while it is being killed leaves a child, which the
    next look finds under the subreaper. What `spare` have forked is never looked at, so that nobody is taken for
    another's whom they fork during the look; it stays below them if they are subreapers. Processes that only clean up
    after others, and end with them, come last: what they would remove from shared memory would be left for ever.

    `living`: of a caller that is `root` itself and a subreaper: its children of whom a thread still lives. Who is
    killed leaves what is below it to `root`, so that nothing is below it when none of them lives, which no look into
    /proc could show better; and only those that die slowly are looked below. The dead are the caller's to reap.
    """
    began_s = time.monotonic()
    patience = _Patience(min(_JANITORS_END_S, deadline_s / 2))
    while True:
        now_s = time.monotonic()
        looks = living is None
        alive = _alive_below(root, spare) if living is None else [pid for pid in living() if pid not in spare]
        if alive and not looks and now_s - began_s > _DEEPER_S:
            looks, alive = True, list({*alive, *_alive_below(root, spare)})
        if not alive or now_s - began_s > deadline_s:
            return alive
        kill(patience.without_janitors(alive))
        time.sleep(0.001)
        while looks and any(_exists(pid) for pid in alive) and time.monotonic() - now_s < _LOOK_AGAIN_S:
            time.sleep(0.001)


def _alive_below(root: int, spare: frozenset[int]) -> list[int]:
    found = [pid for pid in descendants(root, spare) if not is_zombie(pid)]
    return found or [pid for pid in descendants_by_scan(root, spare) if not is_zombie(pid)]


class _Patience:
    """Leaves janitors alone for a while after all others are dead."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._known: dict[int, bool] = {}
        self._alone_since_s: float | None = None

    def without_janitors(self, alive: list[int]) -> list[int]:
        others = [pid for pid in alive if not self._is_janitor(pid)]
        if others:
            return others
        now_s = time.monotonic()
        self._alone_since_s = self._alone_since_s or now_s
        return alive if now_s - self._alone_since_s > self._patience_s else []

    def _is_janitor(self, pid: int) -> bool:
        if pid not in self._known:
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                command = b""
            self._known[pid] = any(name in command for name in _JANITORS)
        return self._known[pid]


def _exists(pid: int) -> bool:
    """Zombies do, until they are reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
