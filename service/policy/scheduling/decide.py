"""What is done with the queue now: who takes which nodes, who waits and why, and who makes room.

The first job in order that does not fit is promised a start; those after it may go first only where that makes it no
later (`backfill`). Who is first, `fair_share` says; what projects may hold, `quota`; who makes room, `preemption`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import Node, NodeKind
from regroup.service.policy.placement.link_speeds import Links
from regroup.service.policy.placement.place import Demand, Placement, Shortage, Unplaceable, fits_empty_cluster, place
from regroup.service.policy.placement.traffic import axes_of_spec
from regroup.service.policy.scheduling.backfill import BackfillCapacity, BackfillReservation, reserve
from regroup.service.policy.scheduling.capacity import Capacity
from regroup.service.policy.scheduling.entries import Preemptibility, RunningJob, Size, WaitingJob, split_shrinking_job
from regroup.service.policy.scheduling.fair_share import AdmissionOrder
from regroup.service.policy.scheduling.preemption import Shrink, Suspend, choose_preemptions, will_fit
from regroup.service.policy.scheduling.quota import HoldReason, Quota, QuotaHold, QuotaUsage
from regroup.service.spec.job import JobSpec

_MOST_NODES_NAMED = 256
"""In a larger cluster a wait is not explained node by node."""


@dataclass(frozen=True)
class SchedulingPolicy:
    """How the queue is run."""

    ageing_s: float = 6 * 3600.0
    """Who waits rises by one class of priority in each such time."""
    min_run_s: float = 600.0
    """Who was given devices is not asked to make room before."""
    can_resize: bool = False
    """Jobs can shrink while they run, and grow."""
    can_start_small: bool = True
    """If they can, one may begin smaller than it wants to be where there is no more room now."""
    links: Mapping[str, Links] = field(default_factory=dict[str, Links])
    """Kind of device → how fast nodes are connected; the table's where there is none."""
    max_nodes_weighed: int = 50_000
    """Nodes that a look may weigh for jobs that start: when so many are, the rest is left to the next look."""


@dataclass(frozen=True)
class Admission:
    """The job takes these nodes now."""

    job_id: str
    layout: Layout
    demand: Demand
    placement: Placement


@dataclass(frozen=True)
class WaitReason:
    """Why a job waits, for programs and people."""

    reason: Shortage | HoldReason
    message: str


@dataclass(frozen=True)
class Wait:
    """The job stays queued, and why."""

    job_id: str
    why: WaitReason
    start_s: float | None = None
    """When it is expected to start, Unix seconds; None if that cannot be told."""


SchedulingDecision = Admission | Wait | Shrink | Suspend


def decide(
    queue: Sequence[WaitingJob],
    nodes: Sequence[Node],
    running: Sequence[RunningJob] = (),
    quotas: Mapping[str, Quota] | None = None,
    *,
    now_s: float = 0.0,
    rule: SchedulingPolicy = SchedulingPolicy(),
) -> list[SchedulingDecision]:
    """What is done now, in the order of turns. Jobs that were not come to (`rule.most_looks`) are not in it."""
    look = _Look(nodes, running, quotas or {}, now_s, rule)
    for job in AdmissionOrder(queue, look.books, now_s=now_s, ageing_s=rule.ageing_s):
        if look.weighed > rule.max_nodes_weighed:
            break
        look.at(job)
    return look.decisions


def queue_position(
    job_id: str,
    queue: Sequence[WaitingJob],
    running: Sequence[RunningJob],
    quotas: Mapping[str, Quota],
    *,
    now_s: float,
    rule: SchedulingPolicy,
) -> int | None:
    """How many jobs are ahead of it as things stand; None if it does not queue."""
    order = AdmissionOrder(queue, quota_usage_of(running, quotas), now_s=now_s, ageing_s=rule.ageing_s)
    return next((ahead for ahead, job in enumerate(order) if job.job_id == job_id), None)


def demand_of(spec: JobSpec, layout: Layout) -> Demand:
    """What the job asks for at this layout."""
    each = spec.resources
    talk, where = axes_of_spec(spec, layout), spec.topology.within()
    kind = NodeKind(each.accelerator or "", spec.environment.image or "")
    cpus, memory_bytes = each.cpus, each.memory or 0
    return Demand(
        layout.world_size, layout.segment_size, each.device, cpus, memory_bytes, **where, kind=kind, axes=talk
    )


def sizes_of(spec: JobSpec) -> tuple[Size, ...]:
    """Legal sizes up to the wanted one, the smallest first."""
    target = spec.layout.layout_at(spec.layout.dp.target)
    return tuple(
        Size(layout, demand_of(spec, layout)) for layout in spec.ladder if layout.world_size <= target.world_size
    )


class _Look:
    """One look at the queue. What has been decided is taken for done."""

    def __init__(
        self,
        nodes: Sequence[Node],
        running: Sequence[RunningJob],
        quotas: Mapping[str, Quota],
        now_s: float,
        rule: SchedulingPolicy,
    ) -> None:
        self.decisions: list[SchedulingDecision] = []
        self.books = quota_usage_of(running, quotas)
        self.weighed = 0
        self._nodes, self._now_s, self._rule = nodes, now_s, rule
        self._running = [replace(job, ends_s=now_s) if job.is_releasing else job for job in running]
        self._spare = BackfillCapacity(Capacity(nodes))
        self._too_many: dict[tuple[int, Demand], int] = {}
        """Of rooms and a demand without its ranks: so many did not fit, so more will not."""
        self._ever: dict[Demand, bool] = {}
        self._held_by: dict[str, str] = {}
        """Projects whose quota is used up, and the job that waits for it."""

    def at(self, job: WaitingJob) -> None:
        """Decide about the next one."""
        if job.pending_dependencies:
            names = ", ".join(job.pending_dependencies)
            self._wait(
                job,
                HoldReason.DEPENDENCY,
                f"comes after {names}, which {_have(job.pending_dependencies)} not succeeded yet",
            )
            return
        capacity = {size.ranks: self._spare.now.all(size.demand) for size in job.sizes}
        sizes = [size for size in job.sizes if capacity[size.ranks] >= size.ranks]
        if not sizes:
            self._wait_for_nodes(job, job.sizes[0].demand)
            return
        if (first := self._held_by.get(job.project)) is not None:
            self._wait(job, Shortage.PRIORITY, f"job {first!r} came earlier and waits for the quota of their project")
            return
        sizes = [size for size in sizes if not self._is_barred(job, size, capacity[size.ranks])] or sizes[:1]
        tries = sizes[::-1] if self._rule.can_resize and self._rule.can_start_small else sizes[-1:]
        held = None
        for size in tries:
            held = self._held(job, size, capacity[size.ranks])
            if held is None and self._starts(job, size):
                return
        if held is not None:
            if not held.is_permanent:
                self._held_by[job.project] = job.name
            self._wait(job, held.reason, held.message)
            return
        if (ahead := self._ahead(tries[-1].demand)) is not None:
            message = f"waits for its turn: job {ahead.name!r} is ahead and waits for devices"
            self._wait(job, Shortage.PRIORITY, message)
            return
        possible = [size for size in sizes if size.ranks <= tries[-1].ranks and self._fits_empty(size.demand)]
        if not possible:
            self._wait_for_nodes(job, tries[-1].demand)
        elif possible[-1] is tries[-1] or not self._starts(job, possible[-1]):
            self._stand_in_line(job, possible[-1])

    def _ahead(self, demand: Demand) -> BackfillReservation | None:
        """The promise to one of its kind that came before."""
        promises = self._spare.promises
        return next((promise for promise in promises if promise.demand.device == demand.device), None)

    def _fits_empty(self, demand: Demand) -> bool:
        """Whether it would fit if nothing ran: that all nodes together have the room need not mean it."""
        if demand not in self._ever:
            self._ever[demand] = fits_empty_cluster(demand, self._nodes)
        return self._ever[demand]

    def _is_barred(self, job: WaitingJob, size: Size, capacity: int) -> bool:
        held = self._held(job, size, capacity)
        return held is not None and held.is_permanent

    def _held(self, job: WaitingJob, size: Size, capacity: int) -> QuotaHold | None:
        free = self._spare.now.free(size.demand)
        return self.books.find_hold(
            job.project, size.ranks, job.non_preemptible_ranks(size.ranks), free=free, capacity=capacity
        )

    def _starts(self, job: WaitingJob, size: Size) -> bool:
        ends_s = None if job.max_duration_s is None else self._now_s + job.max_duration_s
        rooms = self._spare.rooms_for(ends_s)
        placement = self._place(size.demand, rooms)
        if placement is None:
            return False
        self._spare.take(size.demand, placement, rooms)
        self.books.add(job.project, size.ranks, job.non_preemptible_ranks(size.ranks))
        seats = tuple((seat.node.id, seat.ranks) for seat in placement.slots)
        self._running.append(
            RunningJob(
                job.job_id, job.name, size.demand, seats, project=job.project, priority=job.priority,
                preemptibility=Preemptibility.none, allocated_at_s=self._now_s, ends_s=ends_s,
            )
        )  # fmt: skip
        self.decisions.append(Admission(job.job_id, size.layout, size.demand, placement))
        return True

    def _place(self, demand: Demand, rooms: Capacity) -> Placement | None:
        """Rooms only shrink in a look: what did not fit will not, nor will more of the same."""
        like = (id(rooms), replace(demand, ranks=demand.segment))
        if demand.ranks >= self._too_many.get(like, demand.ranks + 1) or rooms.free(demand) < demand.ranks:
            return None
        nodes = rooms.candidates(demand)
        self.weighed += len(nodes)
        outcome = place(demand, nodes, self._rule.links.get(demand.device))
        if isinstance(outcome, Placement):
            return outcome
        self._too_many[like] = demand.ranks
        return None

    def _stand_in_line(self, job: WaitingJob, size: Size) -> None:
        """It does not fit now, and is the first of its kind: it is promised a start."""
        demand = size.demand
        makers: list[Shrink | Suspend] = []
        coming = will_fit(demand, self._spare.beside, self._running)
        if not coming:
            makers = choose_preemptions(
                job, size, self._spare.beside, self._running, self.books,
                now_s=self._now_s, least_run_s=self._rule.min_run_s, can_shrink=self._rule.can_resize,
            )  # fmt: skip
            self._running = _told(self._running, makers, self._now_s)
        promise = reserve(job.job_id, job.name, demand, self._spare.now, self._running, tuple(self._spare.promises))
        self._spare.promise(promise)
        self.decisions += makers
        if makers or coming:
            names = [other.name for other in self._running if other.is_releasing]
            self._wait(job, HoldReason.PREEMPTION, f"{', '.join(names)} let go of devices for it", promise.start_s)
        else:
            self._wait_for_nodes(job, demand, promise)

    def _wait_for_nodes(self, job: WaitingJob, demand: Demand, promise: BackfillReservation | None = None) -> None:
        why = _why_not(demand, self._nodes, self._spare.now, is_possible=promise is not None)
        self._wait(job, why.reason, why.message, promise.start_s if promise else None)

    def _wait(self, job: WaitingJob, reason: Shortage | HoldReason, message: str, start_s: float | None = None) -> None:
        self.decisions.append(Wait(job.job_id, WaitReason(reason, message), start_s))


def quota_usage_of(running: Sequence[RunningJob], quotas: Mapping[str, Quota]) -> QuotaUsage:
    """What projects hold with these jobs."""
    books = QuotaUsage(quotas)
    for job in running:
        books.add(job.project, job.demand.ranks, job.non_preemptible_ranks)
    return books


def _told(running: Sequence[RunningJob], makers: Sequence[Shrink | Suspend], now_s: float) -> list[RunningJob]:
    """The jobs once they were told: what they let go of comes free."""
    told = {maker.job_id: maker for maker in makers}
    after: list[RunningJob] = []
    for job in running:
        match told.get(job.job_id):
            case None:
                after.append(job)
            case Suspend():
                after.append(replace(job, is_releasing=True, ends_s=now_s))
            case Shrink() as maker if job.smaller_sizes:
                after += split_shrinking_job(job, maker.releases, now_s)
            case Shrink():  # another part of what the job holds: that stays, or is going already
                after.append(job)
    return after


def _why_not(demand: Demand, nodes: Sequence[Node], rooms: Capacity, *, is_possible: bool) -> WaitReason:
    """What is missing for it to start now: in a small cluster node by node."""
    if len(nodes) <= _MOST_NODES_NAMED:
        outcome = place(demand, [rooms.get(node) for node in nodes])
        if isinstance(outcome, Unplaceable):
            return WaitReason(outcome.reason, outcome.message)
        return WaitReason(Shortage.PRIORITY, f"needs {demand}; what is free is kept for jobs that are ahead")
    free, everything = rooms.free(demand), rooms.all(demand)
    if is_possible:
        return WaitReason(Shortage.RESOURCES, f"needs {demand}; {free} of {everything} are free now")
    with_closed = Capacity(replace(node, closed_reason="") for node in nodes).all(demand)
    reason = Shortage.NODES_CLOSED if with_closed >= demand.ranks else Shortage.TOO_LARGE
    return WaitReason(reason, f"needs {demand}; the nodes that are open hold {everything} when nothing else runs")


def _have(names: Sequence[str]) -> str:
    return "have" if len(names) > 1 else "has"
