"""The whole queue in scheduling order: who waits, why, and since when."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from regroup.service.cluster_state.queue_positions import QueuePositions
from regroup.service.cluster_state.queued_jobs import QueueEntry
from regroup.service.cluster_state.shared_read import SharedRead
from regroup.service.domain.queued_job import QueuedJob
from regroup.service.store.store import Store


@dataclass(frozen=True)
class ProjectWaits:
    """The queued jobs of a project, as numbers."""

    jobs: int
    devices: int
    """Number of devices that they request."""


@dataclass(frozen=True)
class OrderedQueue:
    """All queued jobs in the order in which the scheduler considers them."""

    entries: Sequence[QueueEntry]
    ahead: Mapping[str, int]
    """Job id → number of jobs ahead of it."""

    @cached_property
    def projects(self) -> Mapping[str, ProjectWaits]:
        """The numbers of each project that has queued jobs, by name."""
        jobs, devices = dict[str, int](), dict[str, int]()
        for entry in self.entries:
            name = entry.job.project
            jobs[name] = jobs.get(name, 0) + 1
            devices[name] = devices.get(name, 0) + (entry.job.ranks or 0)
        return {name: ProjectWaits(jobs[name], devices[name]) for name in sorted(jobs)}

    def part(self, projects: frozenset[str], offset: int, limit: int) -> list[QueuedJob]:
        """Return some jobs of these projects, with their positions in the whole queue."""
        found = self.entries
        if not projects >= self.projects.keys():
            found = [entry for entry in found if entry.job.project in projects]
        jobs = (entry.job for entry in found[offset : offset + limit])
        return [replace(job, position=self.ahead.get(job.id)) for job in jobs]


class QueueList:
    """The whole queue. It is computed once for all that read it after the same change.

    Args:
        clock: Unix seconds.
    """

    def __init__(self, store: Store, positions: QueuePositions, clock: Callable[[], float]) -> None:
        self._positions = positions
        self._shared = SharedRead[None, OrderedQueue](store.queue.version, self._read, clock)

    async def read(self) -> OrderedQueue:
        """Return the queue. It is the same object as before while nothing has changed, for a second.

        Raises:
            UnavailableError: the database does not answer.
        """
        return await self._shared.get(None)

    async def _read(self, _: None) -> OrderedQueue:
        return order_queue(*await self._positions.queue())


def order_queue(entries: Sequence[QueueEntry], ahead: Mapping[str, int]) -> OrderedQueue:
    """Return the queue in scheduling order. Jobs without a position are last, the oldest first.

    Args:
        ahead: job id → number of jobs ahead of it, in this order.
    """
    by_id = {entry.job.id: entry for entry in entries}
    placed = [by_id[job_id] for job_id in ahead if job_id in by_id]
    rest = [entry for entry in entries if entry.job.id not in ahead]
    return OrderedQueue(
        (*placed, *sorted(rest, key=lambda entry: (entry.job.queued_at_s, entry.job.id))),
        {entry.job.id: ahead[entry.job.id] for entry in placed},
    )
