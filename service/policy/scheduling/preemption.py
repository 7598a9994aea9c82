"""Who makes room for a job: first those above their smallest size shrink, then others are suspended. Nobody is killed:
who is suspended has its state in durable storage and queues again.

Room is made by jobs of a lower class, and, for a project that asks for what it is guaranteed, by jobs of whoever
borrowed it. A project that holds no more than its guarantee gives nothing to others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from regroup.service.domain.layout import Layout
from regroup.service.policy.placement.place import Demand, Placement, place
from regroup.service.policy.scheduling.capacity import Capacity, Freed, NodeRanks
from regroup.service.policy.scheduling.entries import Preemptibility, RunningJob, Size, WaitingJob
from regroup.service.policy.scheduling.quota import QuotaUsage

_MOST_SPARED = 64
"""So many are looked at again whether they are needed after all."""


@dataclass(frozen=True)
class Shrink:
    """The job gives up ranks and runs on at another size."""

    job_id: str
    layout: Layout
    releases: tuple[tuple[str, int], ...]
    """Node id and ranks that are to come free there."""
    why: str


@dataclass(frozen=True)
class Suspend:
    """The job saves its state to durable storage, gives all up, and queues again."""

    job_id: str
    why: str


@dataclass(frozen=True)
class _Offer:
    job: RunningJob
    size: Size | None
    """What it shrinks to; None: it is suspended."""

    @property
    def gives(self) -> NodeRanks:
        return (
            self.job.node_ranks
            if self.size is None
            else released_node_ranks(self.job.node_ranks, self.job.demand, self.size)
        )


def choose_preemptions(
    job: WaitingJob,
    size: Size,
    rooms: Capacity,
    running: Sequence[RunningJob],
    books: QuotaUsage,
    *,
    now_s: float,
    least_run_s: float,
    can_shrink: bool,
) -> list[Shrink | Suspend]:
    """Who has to give up what for the job to fit at this size; nobody if that would not be enough.

    Args:
        least_run_s: who was given devices later than so long ago is left alone.
        can_shrink: jobs can give up a part of what they hold.
    """
    fair = [
        other for other in running if _may_ask(job, size, other, books) and now_s - other.allocated_at_s >= least_run_s
    ]
    order = sorted(fair, key=lambda other: (other.priority, -other.allocated_at_s, other.job_id))
    order = order if can_shrink else [replace(other, smaller_sizes=()) for other in order]
    shrinking = [_Offer(other, other.smaller_sizes[0]) for other in order if other.smaller_sizes]
    suspending = [_Offer(other, None) for other in order if other.preemptibility is Preemptibility.full]
    chosen = _enough([*shrinking, *suspending], job, size.demand, rooms, running, books)
    why = f"makes room for job {job.name!r} of project {job.project!r}, priority {job.priority.name}"
    return [
        Suspend(offer.job.job_id, why)
        if offer.size is None
        else Shrink(offer.job.job_id, offer.size.layout, tuple(offer.gives), why)
        for offer in chosen
    ]


def released_node_ranks(seats: NodeRanks, demand: Demand, size: Size) -> NodeRanks:
    """What a job that shrinks lets go, as `reseat` does: its smallest seats first, of equals the last, so that whole
    nodes come free."""
    left, gone = demand.ranks - size.ranks, list[tuple[str, int]]()
    for _, (node_id, ranks) in sorted(enumerate(seats), key=lambda item: (item[1][1], -item[0])):
        if left <= 0:
            break
        gone.append((node_id, min(ranks, left)))
        left -= gone[-1][1]
    return gone


def _may_ask(job: WaitingJob, size: Size, other: RunningJob, books: QuotaUsage) -> bool:
    """Whether the job may have what the other holds."""
    if other.is_releasing or other.preemptibility is Preemptibility.none:
        return False
    lends = books.borrowed(other.project) > 0
    is_above = job.priority > other.priority and (lends or other.project == job.project)
    asks_for_its_own = not books.would_borrow(job.project, size.ranks) and books.total_guaranteed > 0
    return is_above or (asks_for_its_own and lends and other.project != job.project)


def _enough(
    offers: Sequence[_Offer],
    job: WaitingJob,
    demand: Demand,
    rooms: Capacity,
    running: Sequence[RunningJob],
    books: QuotaUsage,
) -> list[_Offer]:
    """The first offers that are enough, without those of them that turn out not to be needed."""
    taken: dict[str, _Offer] = {}
    freed = _leaving(rooms, demand, running)
    given = dict[str, int]()
    for offer in offers:
        project, before = offer.job.project, taken.get(offer.job.job_id)
        is_lent = project != job.project and books.borrowed(project) - given.get(project, 0) <= 0
        if is_lent:
            continue  # the others of its project have given back all that it had beyond its guarantee
        if before is not None:
            freed.reserve(before.job.demand, before.gives)
        freed.release(offer.job.demand, offer.gives)
        more = _ranks(offer.gives) - (_ranks(before.gives) if before is not None else 0)
        given[project] = given.get(project, 0) + more
        taken[offer.job.job_id] = offer
        if freed.ranks >= demand.ranks and _fits(demand, taken.values(), rooms, running):
            return _spare(list(taken.values()), demand, rooms, running)
    return []


def _spare(offers: list[_Offer], demand: Demand, rooms: Capacity, running: Sequence[RunningJob]) -> list[_Offer]:
    """Without those that are not needed, the dearest first; each gives up no more than it must."""
    for offer in offers[-_MOST_SPARED:][::-1]:
        others = [each for each in offers if each is not offer]
        kept = 0 if offer.size is None else offer.size.ranks
        if _fits(demand, others, rooms, running):
            offers = others
            continue
        for size in reversed([size for size in offer.job.smaller_sizes if size.ranks > kept]):
            less = [_Offer(offer.job, size) if each is offer else each for each in offers]
            if _fits(demand, less, rooms, running):
                offers = less
                break
    return offers


def _fits(demand: Demand, offers: Iterable[_Offer], rooms: Capacity, running: Sequence[RunningJob]) -> bool:
    freed = _leaving(rooms, demand, running)
    for offer in offers:
        freed.release(offer.job.demand, offer.gives)
    return freed.ranks >= demand.ranks and isinstance(place(demand, freed.with_room()), Placement)


def will_fit(demand: Demand, rooms: Capacity, running: Sequence[RunningJob]) -> bool:
    """Whether it fits once those have gone that were told to, or are about to end."""
    return _fits(demand, (), rooms, running)


def _leaving(rooms: Capacity, demand: Demand, running: Sequence[RunningJob]) -> Freed:
    freed = Freed(rooms, demand)
    for job in running:
        if job.is_releasing:
            freed.release(job.demand, job.node_ranks)
    return freed


def _ranks(seats: NodeRanks) -> int:
    return sum(ranks for _, ranks in seats)
