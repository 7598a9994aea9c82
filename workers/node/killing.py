"""The end of a subtree of processes, with proof."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from regroup.workers.node.processes import children, descendants, descendants_by_scan, is_zombie

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
    root: int, spare: frozenset[int], deadline_s: float, reap: Callable[[], bool] | None = None
) -> list[int]:
    """End everything below `root` but `spare` and what is below them; return pids that outlive the deadline.

    Repeats until a look finds nothing alive: a process that forks while it is being killed leaves a child, which the
    next look finds under the subreaper. What `spare` have forked is never looked at, so that nobody is taken for
    another's whom they fork during the look; it stays below them if they are subreapers. Processes that only clean up
    after others, and end with them, come last: what they would remove from shared memory would be left for ever.

    `reap`: of a caller that is `root` itself and a subreaper: reaps what is dead, and returns whether it has no child
    any more, dead or alive. Then nothing is below it, which no look into /proc could show better; and who is killed
    leaves what is below it to `root`, so that only its children need be looked for. The fewer looks the better: the
    kernel forgets all that was looked up of a process when that is reaped, and has taken ten seconds for it. Without
    `reap`, the caller reaps its own children afterwards.
    """
    began_s = time.monotonic()
    patience = _Patience(min(_JANITORS_END_S, deadline_s / 2))
    while reap is None or not reap():
        now_s = time.monotonic()
        alive = _alive_below(root, spare, only_children=reap is not None and now_s - began_s < _DEEPER_S)
        if not alive or now_s - began_s > deadline_s:
            return alive
        kill(patience.without_janitors(alive))
        while any(_exists(pid) for pid in alive) and time.monotonic() - now_s < _LOOK_AGAIN_S:
            time.sleep(0.001)
            if reap is not None:
                reap()
    return []


def _alive_below(root: int, spare: frozenset[int], *, only_children: bool) -> list[int]:
    if only_children and (found := [pid for pid in children(root) if pid not in spare and not is_zombie(pid)]):
        return found
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
