"""The queued jobs with their places in the queue, as small values: all of them are in memory."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from regroup.service.cluster_state.queue import Specs, waiting
from regroup.service.domain.queued_job import QueuedJob
from regroup.service.policy.scheduling.entries import WaitingJob
from regroup.service.store.rows.job_rows import job_row
from regroup.service.store.rows.records import START_ESTIMATED, JobRow


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A queued job without its position."""

    job: QueuedJob
    waiting: WaitingJob | None
    """The job for the order of admission: with its smallest size only. None if its spec cannot be read."""


def queue_entry(row: Mapping[Any, Any]) -> QueueEntry:
    """Convert a stored row of a queued job."""
    job, specs = job_row(row), Specs()  # the spec is parsed once
    return QueueEntry(_queued_job(job, specs), _place(job, specs))


def estimated_start_s(job: JobRow) -> float | None:
    """Return the start that the scheduler predicted at its newest pass, in Unix seconds."""
    found = next((each.message for each in job.conditions if each.type == START_ESTIMATED), None)
    return None if found is None else datetime.fromisoformat(found).timestamp()


def _place(job: JobRow, specs: Specs) -> WaitingJob | None:
    with contextlib.suppress(Exception):  # the controller reports a job that cannot be read
        found = waiting(job, specs, after=(), now=0.0, start_s=0.0)
        return replace(found, sizes=(found.sizes[0],))
    return None


def _queued_job(job: JobRow, specs: Specs) -> QueuedJob:
    unmet = job.platform_fault or next((each for each in job.conditions if not each.status), None)
    priority, ranks = _request(job, specs)
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


def _request(job: JobRow, specs: Specs) -> tuple[str, int | None]:
    try:
        spec = specs.of(job).spec
        return spec.priority, spec.layout.layout_at(spec.layout.dp.target).world_size
    except Exception:  # of a damaged row or spec: the controller reports it
        return "normal", None
