"""Conversion of rows into the inputs of the scheduling policy: waiting jobs, running jobs, quotas."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from regroup.service.cluster_state.budgets import JOB_BUDGET, NO_PRICE, PROJECT_BUDGET
from regroup.service.domain.states import JobState
from regroup.service.policy.placement.place import Demand, Shortage
from regroup.service.policy.scheduling.decide import SchedulingPolicy, demand_of, up_to_target
from regroup.service.policy.scheduling.entries import (
    Preemptibility,
    Priority,
    RunningJob,
    Size,
    WaitingJob,
    split_shrinking_job,
)
from regroup.service.policy.scheduling.preemption import released_node_ranks
from regroup.service.policy.scheduling.quota import Quota, WaitCause
from regroup.service.settings import Settings
from regroup.service.spec.job import JobSpec
from regroup.service.store.projects import RESIZE, must_release_all
from regroup.service.store.rows.records import Allocation, AllocationKind, JobRow, ProjectRow

_ENDING_S = 120.0
"""Maximum time that a job needs to end after the order to end."""
_WAITS_FOR_ELSE = frozenset(
    {
        Shortage.NO_NODES, Shortage.TOO_LARGE, Shortage.NODES_CLOSED, WaitCause.DEPENDENCY, WaitCause.PROJECT_LIMIT,
        WaitCause.PROJECT_QUOTA, JOB_BUDGET, PROJECT_BUDGET, NO_PRICE,
    }
)  # fmt: skip
_SETTLED = frozenset({JobState.RUNNING, JobState.RECOVERING, JobState.RESIZING})


@dataclass(frozen=True)
class _JobSizes:
    spec: JobSpec
    sizes: tuple[Size, ...]
    """All legal sizes."""


class Specs:
    """A cache of parsed specs. The spec of a job never changes."""

    def __init__(self) -> None:
        self._cached: dict[str, _JobSizes] = {}

    def retain(self, jobs: Iterable[JobRow]) -> None:
        """Remove all other jobs from the cache."""
        ids = {job.id for job in jobs}
        self._cached = {job_id: sizes for job_id, sizes in self._cached.items() if job_id in ids}

    def of(self, job: JobRow) -> _JobSizes:
        """Return the job's spec and its legal sizes."""
        if job.id not in self._cached:
            spec = job.parsed_spec()
            sizes = tuple(Size(layout, demand_of(spec, layout)) for layout in spec.ladder)
            if not sizes:
                raise ValueError("the spec has no legal layout")
            self._cached[job.id] = _JobSizes(spec, sizes)
        return self._cached[job.id]


def rule_of(settings: Settings) -> SchedulingPolicy:
    """Return the scheduling policy of the settings."""
    # Jobs wait for their requested size: busy devices may be free in a second, but growth waits for a stable minute.
    return SchedulingPolicy(settings.ageing_s, settings.min_run_s, can_resize=True, can_start_small=False)


def quotas_of(projects: Iterable[ProjectRow]) -> dict[str, Quota]:
    """Return the quotas by project."""
    return {row.name: Quota(row.guaranteed, row.borrowable, row.limit, row.weight) for row in projects}


def waiting(job: JobRow, specs: Specs, *, after: Sequence[str], now: float, start_s: float) -> WaitingJob:
    """Convert a queued job.

    Args:
        after: names of the dependencies that have not succeeded yet.
        start_s: maximum duration of a start.

    Raises:
        ValueError: the stored job is not valid. Other exceptions are possible for damaged rows.
    """
    if not math.isfinite(job.queued_at):
        raise ValueError(f"the time of queueing is {job.queued_at}")
    facts = specs.of(job)
    spec = facts.spec
    return WaitingJob(
        job.id,
        job.name,
        up_to_target(spec, facts.sizes),
        project=job.project,
        priority=Priority[spec.priority],
        preemptibility=Preemptibility(spec.effective_preemptibility),
        queued_s=job.queued_at,
        max_duration_s=_longest_s(job, spec, now, start_s),
        pending_dependencies=tuple(after),
    )


def running(job: JobRow, reservations: Sequence[Allocation], specs: Specs, *, now: float) -> list[RunningJob]:
    """Convert a job with these reservations. A job that must shrink becomes two: the part that stays and the rest."""
    whole, resize = _whole(job, reservations, specs, now), job.intents.get(RESIZE)
    smaller = [size for size in whole.smaller_sizes if resize and size.layout.to_json() == resize["layout"]]
    return (
        split_shrinking_job(whole, released_node_ranks(whole.node_ranks, whole.demand, smaller[0]), now)
        if smaller
        else [whole]
    )


def _whole(job: JobRow, reservations: Sequence[Allocation], specs: Specs, now: float) -> RunningJob:
    facts = specs.of(job)
    spec, slots = facts.spec, Counter[str]()
    for row in reservations:  # a job may have several on one node
        slots[row.node_id] += int(row.data["ranks"])
    ranks = slots.total()
    each = facts.sizes[0].demand
    is_leaving = bool(must_release_all(job) or job.intents.get("cancel") or job.state is JobState.DRAINING)
    return RunningJob(
        job.id,
        job.name,
        Demand(ranks, each.segment, each.device, each.cpus, each.memory_bytes, kind=each.kind),
        tuple(slots.items()),
        tuple(size for size in facts.sizes if size.ranks < ranks),
        project=job.project,
        priority=Priority[spec.priority],
        preemptibility=Preemptibility(spec.effective_preemptibility),
        # A job that is still starting has no progress to lose yet: it counts as allocated now.
        allocated_at_s=min((row.created_at for row in reservations), default=now) if job.state in _SETTLED else now,
        ends_s=None if job.is_held else _ends_s(job, spec, now),
        is_releasing=is_leaving and not job.is_held,
    )


def held(
    jobs: Iterable[JobRow],
    rows: Iterable[Allocation],
    specs: Specs,
    *,
    now: float,
    faults: dict[str, Exception] | None = None,
) -> list[RunningJob]:
    """Convert all jobs that have devices.

    A job whose record or spec is not valid counts with the devices of its reservations, and no job can preempt it.

    Args:
        faults: receives the errors of such jobs, by job id.
    """
    reservations: dict[str, list[Allocation]] = {}
    for row in rows:
        if row.kind is AllocationKind.RESERVATION:
            reservations.setdefault(row.job_id, []).append(row)
    parts = list[RunningJob]()
    for job in jobs:
        mine = reservations.get(job.id, ())
        try:
            parts += _parts(job, mine, specs, now)
        except Exception as error:  # of one job: the others still count
            if faults is not None:
                faults[job.id] = error
            parts += _opaque(job, mine, now)
    return parts


def _parts(job: JobRow, reservations: Sequence[Allocation], specs: Specs, now: float) -> list[RunningJob]:
    parts = list[RunningJob]()
    if slots := [row for row in reservations if row.is_for_ranks]:
        parts += running(job, slots, specs, now=now)
    if ready := [row for row in reservations if row.is_spare]:
        # Spares are allocated and released with the job: no other job can preempt them alone.
        spare = replace(_whole(job, ready, specs, now), smaller_sizes=(), preemptibility=Preemptibility.none)
        parts.append(spare)
    return parts


def _opaque(job: JobRow, reservations: Sequence[Allocation], now: float) -> list[RunningJob]:
    """Convert a job without its spec."""
    readable = [row for row in reservations if isinstance(row.data.get("ranks"), int)]
    if not readable:
        return []
    slots, first = Counter[str](), readable[0].data
    for row in readable:
        slots[row.node_id] += row.data["ranks"]
    device = "cuda" if first.get("device_kind") == "cuda" else "cpu"
    demand = Demand(slots.total(), segment=1, device=device, cpus=1)
    return [
        RunningJob(
            job.id, job.name, demand, tuple(slots.items()), project=job.project, preemptibility=Preemptibility.none,
            allocated_at_s=now,
        )
    ]  # fmt: skip


def _longest_s(job: JobRow, spec: JobSpec, now: float, start_s: float) -> float | None:
    """Return the longest time until a queued job would end by `max_duration`, counted from its first start.

    None if there is no such limit, or if the job may be held after a failure.
    """
    if spec.max_duration is None or spec.hold_on_failure is not None:
        return None
    ran_s = 0.0 if job.started_at is None else now - job.started_at
    return max(0.0, spec.max_duration - ran_s) + start_s + _ENDING_S


def _ends_s(job: JobRow, spec: JobSpec, now: float) -> float | None:
    """Return the time when the job will finish at its current step time, or when `max_duration` ends it."""
    ends: list[float] = []
    if job.steps is not None and job.step_duration_s:
        ends.append(now + max(0, job.steps - job.step) * job.step_duration_s)
    if spec.max_duration is not None and job.started_at is not None and spec.hold_on_failure is None:
        ends.append(max(now, job.started_at + spec.max_duration + _ENDING_S))
    return min(ends, default=None)


def waits_for_nodes(job: JobRow) -> bool:
    """Return True if a queued job could start once devices are released.

    False if it is too large for the cluster or its project, or waits for a dependency. True if it is not evaluated yet.
    """
    return not any(each.reason in _WAITS_FOR_ELSE for each in job.conditions if not each.status)


def unmet(after: Sequence[str], others: Mapping[str, JobRow]) -> tuple[list[str], JobRow | None]:
    """Return the names of the dependencies that have not succeeded yet, and one that has ended without success.

    Args:
        after: ids of the dependencies.
    """
    dependencies = [others[job_id] for job_id in after]
    failed = next((job for job in dependencies if job.state.is_terminal and job.state is not JobState.SUCCEEDED), None)
    return [job.name for job in dependencies if job.state is not JobState.SUCCEEDED], failed
