"""Reserve a start for a waiting job, and backfill other jobs without delaying that start.

The promised start follows from the expected end of running jobs. A later job may start earlier if it ends before the
promised start or uses resources that remain free after it. Backfilling never delays a promised start; only running jobs
that end later than expected do. If the start cannot be predicted, no job is backfilled on those nodes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from regroup.service.policy.placement.place import Demand, Placement, place
from regroup.service.policy.scheduling.capacity import Capacity, FutureCapacity, ResourceAmounts, resources_of, subtract
from regroup.service.policy.scheduling.entries import JobReference, RunningJob


@dataclass(frozen=True)
class BackfillReservation:
    """The promised start of a waiting job."""

    job: JobReference
    start_s: float | None
    """Start in Unix seconds; None if it cannot be predicted."""
    demand: Demand
    node_ranks: tuple[tuple[str, int], ...] = ()
    remaining: tuple[tuple[str, ResourceAmounts], ...] = ()
    """Resources that remain free on its nodes from then on."""


def reserve_start(
    job: JobReference,
    demand: Demand,
    capacity: Capacity,
    running: Iterable[RunningJob],
    before: Sequence[BackfillReservation],
) -> BackfillReservation:
    """Return the earliest start of a job that does not fit now.

    Args:
        before: earlier reservations, which this one must respect.
    """
    ends = _by_end(running)

    def freed_by(count: int) -> FutureCapacity:
        freed = FutureCapacity(capacity, demand)
        for promise in before:
            freed.reserve(promise.demand, promise.node_ranks)
        for _, jobs in ends[:count]:
            for each in jobs:
                freed.release(each.demand, each.node_ranks)
        return freed

    first = _count_until_enough(freed_by(0), ends)
    if first is None:
        return BackfillReservation(job, None, demand)
    tries: dict[int, Placement | None] = {}

    def fits(count: int) -> bool:
        if count not in tries:
            outcome = place(demand, freed_by(count).open_nodes())
            tries[count] = outcome if isinstance(outcome, Placement) else None
        return tries[count] is not None

    count = _bisect_first(first, len(ends), fits)
    placement = tries[count] if count is not None else None
    if count is None or placement is None:
        return BackfillReservation(job, None, demand)
    return _reservation(job, demand, ends[count - 1][0], placement, freed_by(count))


class BackfillCapacity:
    """Capacity for jobs that come after jobs with a reservation."""

    def __init__(self, capacity: Capacity) -> None:
        self.before_reservations = capacity
        """Capacity for jobs that end before the first promised start."""
        self.beside_reservations = capacity
        """Capacity for all other jobs; the same object while there is no reservation."""
        self.reservations: list[BackfillReservation] = []

    def add_reservation(self, reservation: BackfillReservation) -> None:
        """Withhold the resources of a reservation from later jobs."""
        if self.beside_reservations is self.before_reservations:
            self.beside_reservations = self.before_reservations.copy()
        if reservation.start_s is None:
            self.beside_reservations = self.beside_reservations.excluding(reservation.demand)
        for node_id, left in reservation.remaining:
            if node_id in self.beside_reservations:
                self.beside_reservations.lower_free(node_id, left)
        self.reservations.append(reservation)

    def capacity_for(self, ends_s: float | None) -> Capacity:
        """Return the capacity for a job that ends at `ends_s` if it starts now."""
        starts = [promise.start_s for promise in self.reservations]
        is_in_time = ends_s is not None and all(start is not None and ends_s <= start for start in starts)
        return self.before_reservations if is_in_time else self.beside_reservations

    def allocate(self, demand: Demand, placement: Placement, capacity: Capacity) -> None:
        """Allocate a placement that was made in `capacity`."""
        self.before_reservations.allocate(demand, placement)
        if self.beside_reservations is self.before_reservations:
            return
        if capacity is self.beside_reservations:
            self.beside_reservations.allocate(demand, placement)
            return
        for slot in placement.slots:
            if slot.node.id in self.beside_reservations:
                now = self.before_reservations[slot.node.id]
                self.beside_reservations.lower_free(slot.node.id, (now.free_cpus, now.free_gpus, now.free_memory_bytes))


def _count_until_enough(freed: FutureCapacity, ends: Sequence[tuple[float, Sequence[RunningJob]]]) -> int | None:
    """Return the number of ends after which enough ranks are free. Enough ranks are not yet a placement."""
    for number, (_, jobs) in enumerate(ends):
        for job in jobs:
            freed.release(job.demand, job.node_ranks)
        if freed.ranks >= freed.demand.ranks:
            return number + 1
    return None


def _bisect_first(low: int, high: int, is_enough: Callable[[int], bool]) -> int | None:
    """Return the smallest number from `low` to `high` for which `holds` is true, if it then holds for all larger ones.

    Searches close to `low` first.
    """
    step, below = 1, low - 1
    while not is_enough(found := min(below + step, high)):
        if found == high:
            return None
        below, step = found, 2 * step
    while found - below > 1:
        middle = (below + found) // 2
        below, found = (below, middle) if is_enough(middle) else (middle, found)
    return found


def _by_end(running: Iterable[RunningJob]) -> list[tuple[float, list[RunningJob]]]:
    found: dict[float, list[RunningJob]] = {}
    for job in running:
        if job.ends_s is not None:
            found.setdefault(job.ends_s, []).append(job)
    return sorted(found.items())


def _reservation(
    job: JobReference, demand: Demand, start_s: float, placement: Placement, freed: FutureCapacity
) -> BackfillReservation:
    slots = tuple((slot.node.id, slot.ranks) for slot in placement.slots)
    after = {node_id: freed.free_on(node_id) for node_id, _ in slots}
    left = tuple((node_id, subtract(after[node_id], resources_of(demand, ranks))) for node_id, ranks in slots)
    return BackfillReservation(job, start_s, demand, slots, left)
