"""Rows of jobs as a forecast needs them, with an estimate of the work that is left. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from regroup.service.cluster_state import queue as queue_view
from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import Node
from regroup.service.operations.capacity.forecast import Basis, QueueJob
from regroup.service.policy.scheduling.capacity import free_of, resources_of, subtract
from regroup.service.policy.scheduling.entries import RunningJob, Size, WaitingJob
from regroup.service.store.rows.records import Allocation, JobRow, ProjectRow

_RELEASE_S = 60.0
"""Time until a job that is about to release its devices has done so."""


@dataclass(frozen=True)
class QueueRows:
    """Rows of the database about the queue."""

    queue: Sequence[JobRow]
    live: Sequence[JobRow]
    """Jobs that have devices."""
    allocations: Sequence[Allocation]
    projects: Sequence[ProjectRow]


def queue_jobs(rows: QueueRows, assumed_s: float, now: float) -> list[QueueJob]:
    """Return the jobs that wait or have devices, with times relative to `now`.

    A queued job whose spec is not valid is left out: it never starts.

    Args:
        assumed_s: remaining work of a job about which nothing is known.
        now: Unix seconds.
    """
    specs, ids = queue_view.Specs(), {job.id for job in [*rows.queue, *rows.live]}
    parts: dict[str, list[RunningJob]] = {}
    for part in queue_view.held(rows.live, rows.allocations, specs, now=now):
        parts.setdefault(part.job_id, []).append(_relative(part, now))
    found = list[QueueJob]()
    for job in rows.queue:
        try:
            after = [job_id for job_id in job.spec.get("depends_on") or () if job_id in ids]
            waiting_job = queue_view.waiting(job, specs, after=after, now=now, start_s=0.0)
        except Exception:  # of one job: the controller reports it
            continue
        left_s, basis = _queued_work(job, waiting_job, assumed_s)
        found.append(QueueJob(replace(waiting_job, queued_s=job.queued_at - now), left_s, basis))
    found += [_running_job(job, parts[job.id], specs, assumed_s, now) for job in rows.live if job.id in parts]
    return found


def with_released(nodes: Sequence[Node], parts: Sequence[RunningJob]) -> list[Node]:
    """Return the nodes after these jobs have released their devices."""
    by_id = {node.id: node for node in nodes}
    for part in parts:
        for node_id, ranks in part.node_ranks:
            if (node := by_id.get(node_id)) is not None:
                cpus, gpus, memory_bytes = subtract(free_of(node), resources_of(part.demand, -ranks))
                by_id[node_id] = replace(node, free_cpus=cpus, free_gpus=gpus, free_memory_bytes=memory_bytes)
    return list(by_id.values())


def _running_job(
    job: JobRow, parts: Sequence[RunningJob], specs: queue_view.Specs, assumed_s: float, now: float
) -> QueueJob:
    try:
        waiting_job = queue_view.waiting(job, specs, after=(), now=now, start_s=0.0)
    except Exception:  # of one job, whose devices still count
        waiting_job = WaitingJob(job.id, job.name, (Size(Layout(), parts[0].demand),), job.project)
    first = parts[0]
    if first.is_releasing:
        left_s, basis = _RELEASE_S, "assumed"
    elif first.ends_s is not None:
        left_s, basis = max(1.0, first.ends_s), "progress" if job.steps and job.step_duration_s else "max_duration"
    else:
        left_s, basis = assumed_s, "assumed"
    at_requested_size_s = left_s * first.demand.ranks / waiting_job.sizes[-1].ranks
    return QueueJob(replace(waiting_job, queued_s=0.0), at_requested_size_s, basis, tuple(parts))


def _queued_work(job: JobRow, waiting_job: WaitingJob, assumed_s: float) -> tuple[float, Basis]:
    if job.steps is not None and job.step_duration_s:
        return max(1.0, (job.steps - job.step) * job.step_duration_s), "progress"
    if waiting_job.max_duration_s is not None:
        return max(1.0, waiting_job.max_duration_s), "max_duration"
    return assumed_s, "assumed"


def _relative(part: RunningJob, now: float) -> RunningJob:
    ends_s = None if part.ends_s is None else part.ends_s - now
    return replace(part, allocated_at_s=part.allocated_at_s - now, ends_s=ends_s)
