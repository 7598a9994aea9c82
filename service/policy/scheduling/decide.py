"""What is done with the queue now: who takes which nodes, who waits and why, and who makes room.

The first job in order that does not fit is promised a start; those after it may go first only where that makes it no
later (`backfill`). Who is first, `fair_share` says; what projects may hold, `quota`; who makes room, `preemption`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import Kind, Node
from regroup.service.policy.placement.link_speeds import Links
from regroup.service.policy.placement.place import Demand, Placement, Shortage, Unplaceable, fits_empty, place
from regroup.service.policy.placement.traffic import axes_of_spec
from regroup.service.policy.scheduling.backfill import BackfillReservation, Spare, reserve
from regroup.service.policy.scheduling.capacity import Capacity
from regroup.service.policy.scheduling.entries import Preemptibility, RunningJob, Size, WaitingJob, shrinking
from regroup.service.policy.scheduling.fair_share import Turns
from regroup.service.policy.scheduling.preemption import Shrink, Suspend, is_coming, make_room
from regroup.service.policy.scheduling.quota import Books, Held, Hold, Quota
from regroup.service.spec.job import JobSpec

_MOST_NODES_NAMED = 256
"""In a larger cluster a wait is not explained node by node."""


@dataclass(frozen=True)
class Rule:
    """How the queue is run."""

    ageing_s: float = 6 * 3600.0
    """Who waits rises by one class of priority in each such time."""
    least_run_s: float = 600.0
    """Who was given devices is not asked to make room before."""
    can_resize: bool = False
    """Jobs can shrink while they run, and grow."""
    begins_small: bool = True
    """If they can, one may begin smaller than it wants to be where there is no more room now."""
    links: Mapping[str, Links] = field(default_factory=dict[str, Links])
    """Kind of device → how fast nodes are connected; the table's where there is none."""
    most_looks: int = 50_000
    """Nodes that a look may weigh for jobs that start: when so many are, the rest is left to the next look."""


@dataclass(frozen=True)
class Admission:
    """The job takes these nodes now."""

    job_id: str
    layout: Layout
    demand: Demand
    placement: Placement


@dataclass(frozen=True)
class Why:
    """Why a job waits, for programs and people."""

    reason: Shortage | Hold
    message: str


@dataclass(frozen=True)
class Wait:
    """The job stays queued, and why."""

    job_id: str
    why: Why
    start_s: float | None = None
    """When it is expected to start, Unix seconds; None if that cannot be told."""


Decision = Admission | Wait | Shrink | Suspend


def decide(
    queue: Sequence[WaitingJob],
    nodes: Sequence[Node],
    running: Sequence[RunningJob] = (),
    quotas: Mapping[str, Quota] | None = None,
    *,
    now_s: float = 0.0,
    rule: Rule = Rule(),
) -> list[Decision]:
    """What is done now, in the order of turns. Jobs that were not come to (`rule.most_looks`) are not in it."""
    look = _Look(nodes, running, quotas or {}, now_s, rule)
    for job in Turns(queue, look.books, now_s=now_s, ageing_s=rule.ageing_s):
        if look.weighed > rule.most_looks:
            break
        look.at(job)
    return look.decisions


def position(
    job_id: str,
    queue: Sequence[WaitingJob],
    running: Sequence[RunningJob],
    quotas: Mapping[str, Quota],
    *,
    now_s: float,
    rule: Rule,
) -> int | None:
    """How many jobs are ahead of it as things stand; None if it does not queue."""
    order = Turns(queue, books_of(running, quotas), now_s=now_s, ageing_s=rule.ageing_s)
    return next((ahead for ahead, job in enumerate(order) if job.job_id == job_id), None)


def demand_of(spec: JobSpec, layout: Layout) -> Demand:
    """What the job asks for at this layout."""
    each = spec.resources
    talk, where = axes_of_spec(spec, layout), spec.topology.within()
    kind = Kind(each.accelerator or "", spec.environment.image or "")
    cpus, memory_bytes = each.cpus, each.memory or 0
    return Demand(
        layout.world_size, layout.segment_size, each.device, cpus, memory_bytes, **where, kind=kind, axes=talk
    )


def sizes_of(spec: JobSpec) -> tuple[Size, ...]:
    """Legal sizes up to the wanted one, the smallest first."""
    target = spec.layout.at(spec.layout.dp.target)
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
        rule: Rule,
    ) -> None:
        self.decisions: list[Decision] = []
        self.books = books_of(running, quotas)
        self.weighed = 0
        self._nodes, self._now_s, self._rule = nodes, now_s, rule
        self._running = [replace(job, ends_s=now_s) if job.is_leaving else job for job in running]
        self._spare = Spare(Capacity(nodes))
        self._too_many: dict[tuple[int, Demand], int] = {}
        """Of rooms and a demand without its ranks: so many did not fit, so more will not."""
        self._ever: dict[Demand, bool] = {}
        self._held_by: dict[str, str] = {}
        """Projects whose quota is used up, and the job that waits for it."""

    def at(self, job: WaitingJob) -> None:
        """Decide about the next one."""
        if job.after:
            names = ", ".join(job.after)
            self._wait(job, Hold.AFTER, f"comes after {names}, which {_have(job.after)} not succeeded yet")
            return
        capacity = {size.ranks: self._spare.now.all(size.demand) for size in job.sizes}
        sizes = [size for size in job.sizes if capacity[size.ranks] >= size.ranks]
        if not sizes:
            self._wait_for_nodes(job, job.sizes[0].demand)
            return
        if (first := self._held_by.get(job.project)) is not None:
            self._wait(job, Shortage.BEHIND, f"job {first!r} came earlier and waits for the quota of their project")
            return
        sizes = [size for size in sizes if not self._is_barred(job, size, capacity[size.ranks])] or sizes[:1]
        tries = sizes[::-1] if self._rule.can_resize and self._rule.begins_small else sizes[-1:]
        held = None
        for size in tries:
            held = self._held(job, size, capacity[size.ranks])
            if held is None and self._starts(job, size):
                return
        if held is not None:
            if not held.is_for_ever:
                self._held_by[job.project] = job.name
            self._wait(job, held.reason, held.message)
            return
        if (ahead := self._ahead(tries[-1].demand)) is not None:
            message = f"waits for its turn: job {ahead.name!r} is ahead and waits for devices"
            self._wait(job, Shortage.BEHIND, message)
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
            self._ever[demand] = fits_empty(demand, self._nodes)
        return self._ever[demand]

    def _is_barred(self, job: WaitingJob, size: Size, capacity: int) -> bool:
        held = self._held(job, size, capacity)
        return held is not None and held.is_for_ever

    def _held(self, job: WaitingJob, size: Size, capacity: int) -> Held | None:
        free = self._spare.now.free(size.demand)
        return self.books.held(job.project, size.ranks, job.firm(size.ranks), free=free, capacity=capacity)

    def _starts(self, job: WaitingJob, size: Size) -> bool:
        ends_s = None if job.longest_s is None else self._now_s + job.longest_s
        rooms = self._spare.rooms_for(ends_s)
        placement = self._place(size.demand, rooms)
        if placement is None:
            return False
        self._spare.take(size.demand, placement, rooms)
        self.books.enter(job.project, size.ranks, job.firm(size.ranks))
        seats = tuple((seat.node.id, seat.ranks) for seat in placement.seats)
        self._running.append(
            RunningJob(
                job.job_id, job.name, size.demand, seats, project=job.project, priority=job.priority,
                preemptibility=Preemptibility.none, since_s=self._now_s, ends_s=ends_s,
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
        coming = is_coming(demand, self._spare.beside, self._running)
        if not coming:
            makers = make_room(
                job, size, self._spare.beside, self._running, self.books,
                now_s=self._now_s, least_run_s=self._rule.least_run_s, can_shrink=self._rule.can_resize,
            )  # fmt: skip
            self._running = _told(self._running, makers, self._now_s)
        promise = reserve(job.job_id, job.name, demand, self._spare.now, self._running, tuple(self._spare.promises))
        self._spare.promise(promise)
        self.decisions += makers
        if makers or coming:
            names = [other.name for other in self._running if other.is_leaving]
            self._wait(job, Hold.MAKING_ROOM, f"{', '.join(names)} let go of devices for it", promise.start_s)
        else:
            self._wait_for_nodes(job, demand, promise)

    def _wait_for_nodes(self, job: WaitingJob, demand: Demand, promise: BackfillReservation | None = None) -> None:
        why = _why_not(demand, self._nodes, self._spare.now, is_possible=promise is not None)
        self._wait(job, why.reason, why.message, promise.start_s if promise else None)

    def _wait(self, job: WaitingJob, reason: Shortage | Hold, message: str, start_s: float | None = None) -> None:
        self.decisions.append(Wait(job.job_id, Why(reason, message), start_s))


def books_of(running: Sequence[RunningJob], quotas: Mapping[str, Quota]) -> Books:
    """What projects hold with these jobs."""
    books = Books(quotas)
    for job in running:
        books.enter(job.project, job.demand.ranks, job.firm)
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
                after.append(replace(job, is_leaving=True, ends_s=now_s))
            case Shrink() as maker if job.smaller:
                after += shrinking(job, maker.gives, now_s)
            case Shrink():  # another part of what the job holds: that stays, or is going already
                after.append(job)
    return after


def _why_not(demand: Demand, nodes: Sequence[Node], rooms: Capacity, *, is_possible: bool) -> Why:
    """What is missing for it to start now: in a small cluster node by node."""
    if len(nodes) <= _MOST_NODES_NAMED:
        outcome = place(demand, [rooms.get(node) for node in nodes])
        if isinstance(outcome, Unplaceable):
            return Why(outcome.reason, outcome.message)
        return Why(Shortage.BEHIND, f"needs {demand}; what is free is kept for jobs that are ahead")
    free, everything = rooms.free(demand), rooms.all(demand)
    if is_possible:
        return Why(Shortage.BUSY, f"needs {demand}; {free} of {everything} are free now")
    with_closed = Capacity(replace(node, closed="") for node in nodes).all(demand)
    reason = Shortage.NODES_CLOSED if with_closed >= demand.ranks else Shortage.TOO_LARGE
    return Why(reason, f"needs {demand}; the nodes that are open hold {everything} when nothing else runs")


def _have(names: Sequence[str]) -> str:
    return "have" if len(names) > 1 else "has"
