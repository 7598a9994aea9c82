"""Predicted starts of a queued job at other sizes: those that its spec permits, and smaller ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from regroup.service.cluster_state import queue as queue_view
from regroup.service.domain.errors import ConflictError
from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import Node
from regroup.service.operations.calculation import CALCULATIONS
from regroup.service.operations.capacity.forecast import QueueJob, QueueState, forecast
from regroup.service.operations.capacity.queue_jobs import QueueRows, queue_jobs
from regroup.service.operations.capacity.what_if import Simulations
from regroup.service.policy.scheduling.decide import SchedulingPolicy, demand_of
from regroup.service.policy.scheduling.entries import Size
from regroup.service.spec.job import JobSpec
from regroup.service.store.rows.records import JobRow

Confidence = Literal["high", "medium", "low"]
_NOW_S = 60.0
"""Time within which a start counts as one of now: the next scheduling pass."""
_ASSUMED_S, _HORIZON_S = 3600.0, 7 * 86_400.0
_MAX_LEGAL, _MAX_SMALLER = 3, 2


@dataclass(frozen=True)
class SizeStart:
    """The start of a job with one size. Times are Unix seconds."""

    ranks: int
    layout: Layout
    is_legal: bool
    """True if the spec of the job permits the size."""
    is_requested: bool
    start_s: float | None
    """None: not within the simulated time."""
    is_now: bool
    """True if the job starts in the next pass of the scheduler."""
    confidence: Confidence
    basis: str
    """Reason for the confidence, for people."""


async def find_size_starts(simulations: Simulations, job: JobRow) -> list[SizeStart]:
    """Return the predicted starts of a queued job at its requested size and at smaller ones, the largest first.

    Raises:
        ConflictError: the job does not wait, or its spec is damaged.
        UnavailableError: the queue or the cluster is too large, or the simulation takes too long.
    """
    now = simulations.clock()
    nodes, rows = await simulations.read(now)
    rule = queue_view.rule_of(simulations.settings)
    return await CALCULATIONS.run(predict_size_starts, job.id, nodes, rows, rule, now)


def predict_size_starts(
    job_id: str, nodes: Sequence[Node], rows: QueueRows, rule: SchedulingPolicy, now: float
) -> list[SizeStart]:
    """Simulate the queue once for each size. Raises the errors of `find_size_starts`."""
    jobs, quotas = queue_jobs(rows, _ASSUMED_S, now), queue_view.quotas_of(rows.projects)
    mine = next((each for each in jobs if each.id == job_id and not each.parts), None)
    if mine is None:
        raise ConflictError(f"job {job_id} does not wait in the queue: only a queued job has predicted starts")
    usable = [node for node in nodes if not node.is_control]
    assumed = sum(bool(each.parts) and each.basis == "assumed" for each in jobs)
    found = list[SizeStart]()
    legal = mine.waiting_job.sizes
    spec = next(row for row in rows.queue if row.id == job_id).parsed_spec()
    for size in _candidates(spec, legal):
        fixed = _with_size(mine, size)
        others = [fixed if each.id == job_id else each for each in jobs]
        start_s = forecast(QueueState(usable, others, quotas), rule, _HORIZON_S).starts_s.get(job_id)
        is_now = start_s is not None and start_s <= _NOW_S
        confidence, basis = _trust(is_now, assumed)
        at_s = None if start_s is None else now + start_s
        is_requested = size.ranks == legal[-1].ranks
        found.append(SizeStart(size.ranks, size.layout, size in legal, is_requested, at_s, is_now, confidence, basis))
        if is_now:
            break  # a smaller size starts no earlier
    return found


def _candidates(spec: JobSpec, legal: Sequence[Size]) -> list[Size]:
    """Return the requested size, some smaller ones that the spec permits, and some that it does not, the largest first.

    The parallel degrees apart from data parallelism stay as they are.
    """
    smaller = [*legal[:-1]][::-1]
    stride = max(1, -(-len(smaller) // _MAX_LEGAL))
    picked = [legal[-1], *smaller[stride - 1 :: stride]]
    if smaller and picked[-1] != smaller[-1]:
        picked.append(smaller[-1])
    least, degree = legal[0], legal[0].layout.data_degree
    for _ in range(_MAX_SMALLER):
        degree //= 2
        if degree < 1:
            break
        layout = replace(least.layout, dp_replicate=1, dp_shard=degree)
        picked.append(Size(layout, demand_of(spec, layout)))
    return picked


def _with_size(job: QueueJob, size: Size) -> QueueJob:
    """Return the job as if it accepted this size only. Its work takes longer with fewer ranks."""
    left_s = job.left_s * job.waiting_job.sizes[-1].ranks / size.ranks
    return replace(job, waiting_job=replace(job.waiting_job, sizes=(size,)), left_s=left_s)


def _trust(is_now: bool, assumed: int) -> tuple[Confidence, str]:
    """Return the confidence in a start, and its reason."""
    if is_now:
        return "high", "enough devices are free now"
    if assumed == 0:
        return "medium", "the ends of all running jobs follow from their steps or their max_duration"
    jobs = "1 running job" if assumed == 1 else f"{assumed} running jobs"
    return "low", f"nothing is known about the end of {jobs}, so an hour is assumed"
