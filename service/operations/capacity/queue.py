"""The whole queue in scheduling order: who waits, why, and since when."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from regroup.service.cluster_state.queue_positions import QueuePositions
from regroup.service.cluster_state.shared_read import SharedRead
from regroup.service.store.rows.records import START_ESTIMATED, JobRow
from regroup.service.store.store import Store


@dataclass(frozen=True)
class QueuedJob:
    """A job that waits."""

    id: str
    name: str
    project: str
    priority: str
    ranks: int | None
    """Number of devices that it requests; None if its spec cannot be read."""
    queued_at_s: float
    position: int | None
    """Number of jobs ahead of it; None if its spec cannot be read."""
    reason: str
    """Code of the reason why it waits; empty before its first evaluation."""
    message: str
    """Reason for people."""
    estimated_start_s: float | None
    """Unix seconds; None if the start cannot be predicted."""


class QueueList:
    """The whole queue. It is computed once for all that read it after the same change.

    Args:
        clock: Unix seconds.
    """

    def __init__(self, store: Store, positions: QueuePositions, clock: Callable[[], float]) -> None:
        self._store, self._positions = store, positions
        self._jobs: Mapping[str, tuple[JobRow, QueuedJob]] = {}
        """Row of each job, and the job without its position. The row stays the same object until the job changes."""
        self._shared = SharedRead[None, Sequence[QueuedJob]](store.queue.version, self._read, clock)

    async def jobs(self) -> Sequence[QueuedJob]:
        """Return all queued jobs in the order in which the scheduler considers them.

        Raises:
            UnavailableError: the database does not answer.
        """
        return await self._shared.get(None)

    async def _read(self, _: None) -> Sequence[QueuedJob]:
        rows, cached = await self._store.queue.jobs(), self._jobs
        ahead = await self._positions.all(rows[-1].id if rows else None)
        self._jobs = {
            row.id: old if (old := cached.get(row.id)) is not None and old[0] is row else (row, _queued_job(row))
            for row in rows
        }
        jobs = [replace(job, position=ahead.get(job.id)) for _, job in self._jobs.values()]
        last = len(jobs)
        return sorted(jobs, key=lambda job: (last if job.position is None else job.position, job.queued_at_s, job.id))


def _queued_job(job: JobRow) -> QueuedJob:
    unmet = job.platform_fault or next((each for each in job.conditions if not each.status), None)
    priority, ranks = _request(job)
    return QueuedJob(
        job.id,
        job.name,
        job.project,
        priority,
        ranks,
        job.queued_at,
        None,
        unmet.reason if unmet else "",
        unmet.message if unmet else "",
        estimated_start_s(job),
    )


def _request(job: JobRow) -> tuple[str, int | None]:
    try:
        spec = job.parsed_spec()
        return spec.priority, spec.layout.layout_at(spec.layout.dp.target).world_size
    except Exception:  # of a damaged row or spec: the controller reports it
        return "normal", None


def estimated_start_s(job: JobRow) -> float | None:
    """Return the start that the scheduler predicted at its newest pass, in Unix seconds."""
    found = next((each.message for each in job.conditions if each.type == START_ESTIMATED), None)
    return None if found is None else datetime.fromisoformat(found).timestamp()


def devices_of(jobs: Sequence[QueuedJob]) -> int:
    """Return the number of devices that the jobs request together."""
    return sum(job.ranks or 0 for job in jobs)
