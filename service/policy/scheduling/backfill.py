"""When and where the job whose turn it is can start, and what others may use until then without making it later.

Its start is promised from when running jobs are expected to end. A job that came later may go before it if it surely
ends before that start, or takes what is left beside it then. So nobody who goes first makes the start later than
promised; if running jobs end later than expected, that alone does. Where the start cannot be told, nobody goes first.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from regroup.service.policy.placement.place import Demand, Placement, place
from regroup.service.policy.scheduling.capacity import Capacity, Freed, ResourceAmounts, resources_of, subtract
from regroup.service.policy.scheduling.entries import RunningJob


@dataclass(frozen=True)
class BackfillReservation:
    """The start that a job is promised."""

    job_id: str
    name: str
    start_s: float | None
    """Unix seconds; None if it cannot be told."""
    demand: Demand
    node_ranks: tuple[tuple[str, int], ...] = ()
    left: tuple[tuple[str, ResourceAmounts], ...] = ()
    """What its nodes have free beside it from then on."""


def reserve(
    job_id: str,
    name: str,
    demand: Demand,
    rooms: Capacity,
    running: Iterable[RunningJob],
    before: Sequence[BackfillReservation],
) -> BackfillReservation:
    """The earliest start of a job that does not fit now; `before` are promises that it must not break."""
    ends = _by_end(running)

    def freed_by(count: int) -> Freed:
        freed = Freed(rooms, demand)
        for promise in before:
            freed.reserve(promise.demand, promise.node_ranks)
        for _, jobs in ends[:count]:
            for job in jobs:
                freed.release(job.demand, job.node_ranks)
        return freed

    first = _first_enough(freed_by(0), ends)
    if first is None:
        return BackfillReservation(job_id, name, None, demand)
    tries: dict[int, Placement | None] = {}

    def fits(count: int) -> bool:
        if count not in tries:
            outcome = place(demand, freed_by(count).with_room())
            tries[count] = outcome if isinstance(outcome, Placement) else None
        return tries[count] is not None

    count = _least(first, len(ends), fits)
    placement = tries[count] if count is not None else None
    if count is None or placement is None:
        return BackfillReservation(job_id, name, None, demand)
    return _reservation(job_id, name, demand, ends[count - 1][0], placement, freed_by(count))


class BackfillCapacity:
    """What may be taken now by jobs that came later than those with a promise."""

    def __init__(self, rooms: Capacity) -> None:
        self.now = rooms
        """For jobs that surely end before the first promised start."""
        self.beside = rooms
        """For all others; the same as long as nobody was promised anything."""
        self.promises: list[BackfillReservation] = []

    def promise(self, reservation: BackfillReservation) -> None:
        """Nobody takes from now on what the promise needs."""
        if self.beside is self.now:
            self.beside = self.now.copy()
        if reservation.start_s is None:
            self.beside = self.beside.without(reservation.demand)
        for node_id, left in reservation.left:
            if node_id in self.beside:
                self.beside.lower(node_id, left)
        self.promises.append(reservation)

    def rooms_for(self, ends_s: float | None) -> Capacity:
        """Where a job may go that surely ends at `ends_s`, if it goes now."""
        starts = [promise.start_s for promise in self.promises]
        is_in_time = ends_s is not None and all(start is not None and ends_s <= start for start in starts)
        return self.now if is_in_time else self.beside

    def take(self, demand: Demand, placement: Placement, rooms: Capacity) -> None:
        """The placement, which was made in `rooms`, is taken."""
        self.now.take(demand, placement)
        if self.beside is self.now:
            return
        if rooms is self.beside:
            self.beside.take(demand, placement)
            return
        for seat in placement.slots:
            if seat.node.id in self.beside:
                now = self.now[seat.node.id]
                self.beside.lower(seat.node.id, (now.free_cpus, now.free_gpus, now.free_memory_bytes))


def _first_enough(freed: Freed, ends: Sequence[tuple[float, Sequence[RunningJob]]]) -> int | None:
    """How many of the ends have to come, at least, for so many ranks to be free: a count need not be a placement."""
    for number, (_, jobs) in enumerate(ends):
        for job in jobs:
            freed.release(job.demand, job.node_ranks)
        if freed.ranks >= freed.demand.ranks:
            return number + 1
    return None


def _least(low: int, high: int, holds: Callable[[int], bool]) -> int | None:
    """The smallest number from `low` to `high` for which it holds, if it then holds for all larger ones. It is asked
    close to `low` first."""
    step, below = 1, low - 1
    while not holds(found := min(below + step, high)):
        if found == high:
            return None
        below, step = found, 2 * step
    while found - below > 1:
        middle = (below + found) // 2
        below, found = (below, middle) if holds(middle) else (middle, found)
    return found


def _by_end(running: Iterable[RunningJob]) -> list[tuple[float, list[RunningJob]]]:
    found: dict[float, list[RunningJob]] = {}
    for job in running:
        if job.ends_s is not None:
            found.setdefault(job.ends_s, []).append(job)
    return sorted(found.items())


def _reservation(
    job_id: str, name: str, demand: Demand, start_s: float, placement: Placement, freed: Freed
) -> BackfillReservation:
    seats = tuple((seat.node.id, seat.ranks) for seat in placement.slots)
    after = {node_id: freed.free_on(node_id) for node_id, _ in seats}
    left = tuple((node_id, subtract(after[node_id], resources_of(demand, ranks))) for node_id, ranks in seats)
    return BackfillReservation(job_id, name, start_s, demand, seats, left)
