"""Choose the jobs to preempt for a waiting job: first jobs above their smallest size shrink, then others are suspended.

A suspended job has its state in durable storage and returns to the queue. Jobs of a lower class are preempted, and, for
a project that requests its guarantee, jobs of projects that borrow. A project that uses no more than its guarantee
loses nothing to other projects.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from regroup.service.domain.layout import Layout
from regroup.service.policy.placement.place import Demand, Placement, place
from regroup.service.policy.scheduling.capacity import Capacity, FutureCapacity, NodeRanks
from regroup.service.policy.scheduling.entries import Preemptibility, RunningJob, Size, WaitingJob
from regroup.service.policy.scheduling.quota import QuotaUsage

_MAX_RECHECKED = 64
"""Number of chosen jobs that are checked again whether they are needed."""


@dataclass(frozen=True)
class Shrink:
    """The job releases ranks and continues at a smaller size."""

    job_id: str
    layout: Layout
    releases: tuple[tuple[str, int], ...]
    """Node id and number of ranks to release there."""
    why: str

    def after(self, earlier: "Shrink | Requeue") -> "Shrink | Requeue":
        """Return one preemption with the effect of an earlier one of the same job and this one."""
        if isinstance(earlier, Requeue):
            return earlier  # a requeue releases everything
        releases = dict(earlier.releases)
        for node_id, ranks in self.releases:
            releases[node_id] = releases.get(node_id, 0) + ranks
        return Shrink(self.job_id, self.layout, tuple(releases.items()), _join_reasons(earlier.why, self.why))


@dataclass(frozen=True)
class Requeue:
    """The job saves its state to durable storage, releases all devices and returns to the queue."""

    job_id: str
    why: str

    def after(self, earlier: "Shrink | Requeue") -> "Requeue":
        """Return one preemption with the effect of an earlier one of the same job and this one."""
        return Requeue(self.job_id, _join_reasons(earlier.why, self.why))


@dataclass(frozen=True)
class _Preemption:
    """One possible preemption."""

    job: RunningJob
    size: Size | None
    """Size to shrink to; None means suspend."""

    @property
    def releases(self) -> NodeRanks:
        return (
            self.job.node_ranks
            if self.size is None
            else released_node_ranks(self.job.node_ranks, self.job.demand, self.size)
        )


def choose_preemptions(
    job: WaitingJob,
    size: Size,
    capacity: Capacity,
    running: Sequence[RunningJob],
    usage: QuotaUsage,
    *,
    now_s: float,
    min_run_s: float,
    can_shrink: bool,
) -> list[Shrink | Requeue]:
    """Return the preemptions that let the job fit at this size; empty if no set of preemptions is enough.

    Args:
        min_run_s: jobs with a more recent allocation are not preempted.
        can_shrink: true if jobs can release a part of their devices.
    """
    fair = [
        other
        for other in running
        if _can_preempt(job, size, other, usage) and now_s - other.allocated_at_s >= min_run_s
    ]
    order = sorted(fair, key=lambda other: (other.priority, -other.allocated_at_s, other.job_id))
    order = order if can_shrink else [replace(other, smaller_sizes=()) for other in order]
    shrinking = [_Preemption(other, other.smaller_sizes[0]) for other in order if other.smaller_sizes]
    suspending = [_Preemption(other, None) for other in order if other.preemptibility is Preemptibility.full]
    chosen = _choose_enough([*shrinking, *suspending], job, size.demand, capacity, running, usage)

    def why(offer: _Preemption) -> str:
        return f"preempted by {job.reference.text_for(offer.job.project)}, priority {job.priority.name}"

    return [
        Requeue(offer.job.job_id, why(offer))
        if offer.size is None
        else Shrink(offer.job.job_id, offer.size.layout, tuple(offer.releases), why(offer))
        for offer in chosen
    ]


def released_node_ranks(slots: NodeRanks, demand: Demand, size: Size) -> NodeRanks:
    """Return the ranks that a shrinking job releases, as `resize_slots` chooses them.

    The smallest node parts are released first (the last of equal ones), so that whole nodes become free.
    """
    left, gone = demand.ranks - size.ranks, list[tuple[str, int]]()
    for _, (node_id, ranks) in sorted(enumerate(slots), key=lambda item: (item[1][1], -item[0])):
        if left <= 0:
            break
        gone.append((node_id, min(ranks, left)))
        left -= gone[-1][1]
    return gone


def _can_preempt(job: WaitingJob, size: Size, other: RunningJob, usage: QuotaUsage) -> bool:
    """Return True if the job may preempt the other one."""
    if other.is_releasing or other.preemptibility is Preemptibility.none:
        return False
    lends = usage.borrowed(other.project) > 0
    is_above = job.priority > other.priority and (lends or other.project == job.project)
    is_reclaiming = not usage.would_borrow(job.project, size.ranks) and usage.total_guaranteed > 0
    return is_above or (is_reclaiming and lends and other.project != job.project)


def _choose_enough(
    offers: Sequence[_Preemption],
    job: WaitingJob,
    demand: Demand,
    capacity: Capacity,
    running: Sequence[RunningJob],
    usage: QuotaUsage,
) -> list[_Preemption]:
    """Return the first offers that are enough, without those that are not needed."""
    taken: dict[str, _Preemption] = {}
    freed = _after_releases(capacity, demand, running)
    given = dict[str, int]()
    for offer in offers:
        project, before = offer.job.project, taken.get(offer.job.job_id)
        is_lent = project != job.project and usage.borrowed(project) - given.get(project, 0) <= 0
        if is_lent:
            continue  # earlier offers have already returned everything that its project borrows
        if before is not None:
            freed.reserve(before.job.demand, before.releases)
        freed.release(offer.job.demand, offer.releases)
        more = _ranks(offer.releases) - (_ranks(before.releases) if before is not None else 0)
        given[project] = given.get(project, 0) + more
        taken[offer.job.job_id] = offer
        if freed.ranks >= demand.ranks and _fits(demand, taken.values(), capacity, running):
            return _drop_unneeded(list(taken.values()), demand, capacity, running)
    return []


def _drop_unneeded(
    offers: list[_Preemption], demand: Demand, capacity: Capacity, running: Sequence[RunningJob]
) -> list[_Preemption]:
    """Return the offers without unneeded ones, the costliest checked first. Each releases no more than necessary."""
    for offer in offers[-_MAX_RECHECKED:][::-1]:
        others = [each for each in offers if each is not offer]
        kept = 0 if offer.size is None else offer.size.ranks
        if _fits(demand, others, capacity, running):
            offers = others
            continue
        for size in reversed([size for size in offer.job.smaller_sizes if size.ranks > kept]):
            less = [_Preemption(offer.job, size) if each is offer else each for each in offers]
            if _fits(demand, less, capacity, running):
                offers = less
                break
    return offers


def _fits(demand: Demand, offers: Iterable[_Preemption], capacity: Capacity, running: Sequence[RunningJob]) -> bool:
    freed = _after_releases(capacity, demand, running)
    for offer in offers:
        freed.release(offer.job.demand, offer.releases)
    return freed.ranks >= demand.ranks and isinstance(place(demand, freed.open_nodes()), Placement)


def will_fit(demand: Demand, capacity: Capacity, running: Sequence[RunningJob]) -> bool:
    """Return True if the demand fits once the jobs that are being preempted or end have released their devices."""
    return _fits(demand, (), capacity, running)


def _after_releases(capacity: Capacity, demand: Demand, running: Sequence[RunningJob]) -> FutureCapacity:
    freed = FutureCapacity(capacity, demand)
    for job in running:
        if job.is_releasing:
            freed.release(job.demand, job.node_ranks)
    return freed


def _join_reasons(*reasons: str) -> str:
    return "; ".join(dict.fromkeys(reasons))


def _ranks(slots: NodeRanks) -> int:
    return sum(ranks for _, ranks in slots)
