"""End of the programs of a local cluster before it is killed: they get SIGTERM, and time to save their work.

Without more, a supervisor would see its ranks end, and start others. So all other processes of the cluster are stopped
(SIGSTOP) first. They never run again: the caller kills them.
"""

import contextlib
import re
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from regroup.service.local import processes
from regroup.service.local.processes import Process

_DEVICE_LOCK = re.compile(r"/device-\d+\.lock$")
"""Lock of its device, which each rank has open. Processes that it forks may have it open, too."""
_POLL_S = 0.05


@dataclass(frozen=True)
class EndedPrograms:
    """Ranks of a cluster that got SIGTERM."""

    count: int
    alive: int
    """Number of those that had not ended in time."""


def end_programs(
    find_cluster: Callable[[], set[Process]], grace_s: float, on_wait: Callable[[int, float], None]
) -> EndedPrograms:
    """Send SIGTERM to every rank, and wait until all have ended, at most `grace_s`. Ctrl-C ends the wait.

    Args:
        find_cluster: returns the live processes of the cluster.
        grace_s: longest wait.
        on_wait: called often with the number of live ranks and the rest of the time in seconds.
    """
    if not find_ranks(find_cluster()):
        return EndedPrograms(0, 0)
    _stop_others(find_cluster)
    ranks = find_ranks(find_cluster())
    processes.send(ranks, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    with contextlib.suppress(KeyboardInterrupt):
        while alive := [rank for rank in ranks if rank.is_alive]:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            on_wait(len(alive), left_s)
            time.sleep(_POLL_S)
    return EndedPrograms(len(ranks), sum(rank.is_alive for rank in ranks))


def find_ranks(cluster: Iterable[Process]) -> set[Process]:
    """Return the ranks among these processes, without the processes that ranks have forked."""
    locked = {process for process in cluster if any(map(_DEVICE_LOCK.search, processes.open_files(process)))}
    pids = {process.pid for process in locked}
    return {process for process in locked if processes.parent_pid(process) not in pids}


def _stop_others(find_cluster: Callable[[], set[Process]]) -> None:
    """Stop all processes except those below zygotes: ranks, their helpers, stores and savers."""
    stopped: set[Process] = set()
    while True:
        cluster = find_cluster()
        parents = {processes.parent_pid(rank) for rank in find_ranks(cluster)}
        zygotes = {process for process in cluster if process.pid in parents}
        others = cluster - (processes.with_descendants(zygotes) - zygotes) - stopped
        if not others:
            return
        processes.send(others, signal.SIGSTOP)
        stopped |= others
