"""The whole queue in scheduling order: who waits, why, and since when."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from regroup.service.cluster_state.queue_positions import QueuePositions
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


async def list_queue(store: Store, positions: QueuePositions) -> list[QueuedJob]:
    """Return all queued jobs in the order in which the scheduler considers them.

    Raises:
        UnavailableError: the database does not answer.
    """
    ahead = await positions.all()
    jobs = [_queued_job(job, ahead.get(job.id)) for job in await store.queued_jobs()]
    last = len(jobs)
    return sorted(jobs, key=lambda job: (last if job.position is None else job.position, job.queued_at_s, job.id))


def _queued_job(job: JobRow, position: int | None) -> QueuedJob:
    unmet = job.platform_fault or next((each for each in job.conditions if not each.status), None)
    priority, ranks = _request(job)
    return QueuedJob(
        job.id,
        job.name,
        job.project,
        priority,
        ranks,
        job.queued_at,
        position,
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
