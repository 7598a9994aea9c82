"""Search the nodes and the rank order with the least predicted communication and little fragmentation.

The search fills domains from the innermost that holds the job to the whole cluster. Each is filled with the fewest
children, the largest first and the tightest for the rest, down to nodes. The cheapest candidate is then improved by
small changes, within a work limit that depends on the job's size.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from regroup.service.domain.topology import DOMAIN_LEVELS, Level
from regroup.service.policy.placement.candidate import Candidate, CandidateSlots
from regroup.service.policy.placement.communication_cost import Axis, RankMap, communication_seconds
from regroup.service.policy.placement.demand import Demand
from regroup.service.policy.placement.link_speeds import Links
from regroup.service.policy.placement.local_search import improve
from regroup.service.policy.placement.node_index import NodeIndex, totals

BROKEN_COSTS = 0.1
"""Penalty for fragments: relative increase of the communication time if as many devices as the job has ranks remain
free on nodes that it fragments."""
BROKEN_NODE_COSTS = 0.5
"""Additional relative penalty for each empty node that is fragmented."""
_NODES = len(DOMAIN_LEVELS)
_RACK, _INNER = DOMAIN_LEVELS.index(Level.RACK), DOMAIN_LEVELS.index(Level.GPU_DOMAIN)
_STARTS = 2
"""Number of cheapest candidates that are improved."""
_MANY_SEATS = 64
"""Number of slots above which fewer candidates are tried and none is improved."""


class Search:
    """State of the placement of one job."""

    def __init__(self, demand: Demand, index: NodeIndex, links: Links) -> None:
        self.demand, self.index, self.links = demand, index, links
        self.axes = axes_of(demand)
        self.half = demand.ranks // 2 // demand.segment * demand.segment if demand.spread else demand.ranks
        segment = demand.segment if demand.segment_within is Level.NODE else 1
        most = self.half if demand.spread is not None else demand.ranks
        free = index.free_ranks(demand)
        self.capacities: Sequence[int] = (
            [min(cap, most) // segment * segment for cap in free]
            if demand.spread
            else (free if segment == 1 else [cap // segment * segment for cap in free])
        )
        self._sums: dict[int, list[int]] = {}
        self._orders = list(dict.fromkeys([self.axes, _by_bytes(self.axes)]))

    def find_best(self) -> tuple[Candidate | None, list[Candidate]]:
        """Return the best candidate, and the more expensive ones on other nodes."""
        if (single := self._single()) is not None:
            return self.evaluate(((single, self.demand.ranks),)), []
        ways: dict[CandidateSlots, Candidate] = {}
        for slots in self._tried():
            if slots not in ways and self.is_spread(slots):
                ways[slots] = self.evaluate(slots)
                if self._is_perfect(ways[slots]):
                    break
        if not ways:
            return None, []
        ordered = sorted(ways.values(), key=lambda way: way.cost)
        best = self.evaluate(ordered[0].slots, every_order=True)
        if len(best.slots) <= _MANY_SEATS and not self._is_perfect(best):
            improved = [improve(self, way, len(ordered[:_STARTS])) for way in ordered[:_STARTS]]
            best = min([best, *improved], key=lambda way: way.cost)
        nodes = {at for at, _ in best.slots}
        others = [way for way in ways.values() if {at for at, _ in way.slots} != nodes]
        return best, sorted(others, key=lambda way: way.cost)

    def evaluate(self, slots: CandidateSlots, *, every_order: bool = False) -> Candidate:
        """Return the candidate of these slots, in the order of the layout's axes or in the cheapest order."""
        numbers = self.index.domain_numbers
        ground = RankMap(
            tuple([count for _, count in slots]),
            tuple([(numbers[0][at], numbers[1][at], numbers[2][at], numbers[3][at]) for at, _ in slots]),
        )
        orders = self._orders if every_order else self._orders[:1]
        spent_s, axes = min(
            ((communication_seconds(order, ground, self.links), order) for order in orders), key=lambda item: item[0]
        )
        broken, nodes = self.broken(slots)
        preferred = self._domains(slots, self.demand.preferred) if self.demand.preferred else 0
        factor = 1 + BROKEN_COSTS * broken / self.demand.ranks + BROKEN_NODE_COSTS * nodes
        return Candidate(slots, axes, spent_s, broken, (preferred, max(0, nodes - 1), spent_s * factor))

    def broken(self, slots: CandidateSlots) -> tuple[int, int]:
        """Return the increase in free devices on nodes in use by others, and the number of empty nodes that are
        fragmented."""
        free, everything = self.index.free_ranks(self.demand), self.index.total_ranks(self.demand)
        devices = nodes = 0
        for at, count in slots:
            is_whole, left = free[at] == everything[at], free[at] - count
            devices += left - (0 if is_whole else free[at])
            nodes += is_whole and left > 0
        return devices, nodes

    def is_spread(self, slots: CandidateSlots) -> bool:
        """Return True if no domain has more of the nodes than mirroring allows."""
        level = self.demand.spread
        if level is None:
            return True
        if level is Level.NODE:
            return len(slots) > 1
        numbers = [self.index.domain_numbers[DOMAIN_LEVELS.index(level)][at] for at, _ in slots]
        return 2 * max(numbers.count(number) for number in set(numbers)) <= len(numbers)

    def node_range(self, at: int) -> tuple[int, int]:
        """Return the range of nodes that a job with a rank on this node may use."""
        level = self.demand.required
        if level is None or level not in DOMAIN_LEVELS:
            return 0, len(self.index.nodes)
        index = DOMAIN_LEVELS.index(level)
        number, starts = self.index.domain_numbers[index][at], self.index.domain_starts[index]
        return starts[number], starts[number + 1]

    # ------------------------------------------------------------ ways to fill domains

    def _single(self) -> int | None:
        """Return the tightest node that holds all ranks, in the tightest rack."""
        ranks = self.demand.ranks
        if self.demand.spread is not None:
            return None
        enough = [at for at, cap in enumerate(self.capacities) if cap >= ranks]
        if not enough:
            return None
        free, racks, numbers = self.index.free_ranks(self.demand), self._totals(_RACK), self.index.domain_numbers[_RACK]
        return min(enough, key=lambda at: (free[at], racks[numbers[at]], at))

    def _tried(self) -> Iterator[CandidateSlots]:
        """Yield ways to fill the domains that hold the job, the innermost level first."""
        demand = self.demand
        is_large = demand.ranks > 8 * _MANY_SEATS
        if demand.required is Level.NODE:
            return  # one would have been found
        lowest = -1 if demand.required is None else DOMAIN_LEVELS.index(demand.required)
        levels_tried = 0
        for level in range(_NODES - 1, lowest - 1, -1):
            starts = [0, len(self.index.nodes)] if level < 0 else self.index.domain_starts[level]
            enough = sorted((size, at) for at, size in enumerate(self._totals(level)) if size >= demand.ranks)
            for _, domain in enough[: 1 if is_large else 4] + enough[-1:] * (len(enough) > 1):
                for unit in self._units():
                    filled = self._fill(level, starts[domain], starts[domain + 1], demand.ranks, unit)
                    yield tuple(filled)
                    yield tuple(sorted(filled))
                if not is_large:
                    yield from self._even(starts[domain], starts[domain + 1])
            levels_tried += bool(enough)
            if is_large and levels_tried == 2:
                return
            if level < 0 and enough and demand.ranks <= _MANY_SEATS and self._has_loose_segments:
                yield self._anywhere()

    @property
    def _has_loose_segments(self) -> bool:
        """True if each segment is inside a node, so that segments can be far apart."""
        return self.demand.segment == 1 or self.demand.segment_within is Level.NODE

    def _anywhere(self) -> CandidateSlots:
        """Return the fewest nodes, the largest and then the tightest, anywhere: the least fragmentation."""
        grain = self.demand.segment
        parts = [(cap // grain * grain, -at, at + 1) for at, cap in enumerate(self.capacities) if cap >= grain]
        return tuple(sorted((start, count) for start, _, count in _picked(parts, self.demand.ranks, grain)))

    def _even(self, low: int, high: int) -> Iterator[CandidateSlots]:
        """Yield equal shares on the fewest nodes of a range, and on one or two more, which avoids a bottleneck
        uplink."""
        grain = self.demand.segment
        segments = self.demand.ranks // grain
        free = sorted(
            ((self.capacities[at] // grain, -at) for at in range(low, high) if self.capacities[at] >= grain),
            reverse=True,
        )
        if self.demand.segment_within is not Level.NODE and grain > 1:
            return
        few = next(n for n in range(1, len(free) + 1) if sum(cap for cap, _ in free[:n]) >= segments)
        for count in range(few, min(few + 2, len(free)) + 1):
            for start in {
                0,
                max(0, bisect_left(free, True, key=lambda each: each[0] < -(-segments // count)) - count),
            }:
                left, slots = segments, list[tuple[int, int]]()
                chosen = sorted(free[start : start + count])
                for number, (cap, at) in enumerate(chosen):
                    share = min(cap, -(-left // (len(chosen) - number)))
                    left -= share
                    slots.append((-at, share * grain))
                if not left and all(share for _, share in slots):
                    yield tuple(sorted(slots))

    def _units(self) -> list[int]:
        """Return the sizes of nested groups that stay together if whole groups fit."""
        size, units = 1, list[int]()
        for axis in self.axes:
            size *= axis.degree
            if self.demand.segment < size < self.demand.ranks and self.demand.ranks % size == 0:
                units.append(size)
        return [self.demand.segment, *dict.fromkeys(reversed(units))][:3]

    def _fill(self, level: int, low: int, high: int, ranks: int, unit: int) -> list[tuple[int, int]]:
        """Return slots for `ranks` on nodes [low, high) of one domain of `level`, in the order of choice."""
        inner = level + 1
        while inner < _NODES and self.index.domain_numbers[inner][low] == self.index.domain_numbers[inner][high - 1]:
            inner += 1
        grain = self.demand.segment
        if inner < _NODES:
            numbers, starts = self.index.domain_numbers[inner], self.index.domain_starts[inner]
            sums = self._totals(inner)
            first, last = numbers[low], numbers[high - 1]
            if last - first + 1 < high - low:
                parts = [(sums[d], -starts[d], starts[d + 1]) for d in range(first, last + 1) if sums[d]]
                picked = _picked(parts, ranks, unit)
                return [
                    slot
                    for start, end, count in picked
                    for slot in self._fill(inner, start, end, count, unit if count % unit == 0 else grain)
                ]
        elif self.demand.segment_within is not Level.NODE:
            grain = 1  # nodes of one gpu_domain share segments
        caps = self.capacities
        parts = [(caps[at] // grain * grain, -at, at + 1) for at in range(low, high) if caps[at] >= grain]
        return [(start, count) for start, _, count in _picked(parts, ranks, unit)]

    def _totals(self, level: int) -> list[int]:
        """Return the number of ranks that fit in each domain of a level, limited by the allowed number."""
        if level not in self._sums:
            sums = totals(self.demand, self.capacities, self.index.domain_starts, level)
            spread = self.demand.spread
            if spread in DOMAIN_LEVELS:
                index = DOMAIN_LEVELS.index(spread)
                if level == index or (level > index):
                    sums = [min(each, self.half) for each in sums]
                else:
                    outer = [0] * len(sums)
                    for number, each in enumerate(self._totals(index)):
                        at = self.index.domain_starts[index][number]
                        outer[0 if level < 0 else self.index.domain_numbers[level][at]] += each
                    sums = outer
            self._sums[level] = sums
        return self._sums[level]

    # ------------------------------------------------------------ what a way is like

    def _is_perfect(self, way: Candidate) -> bool:
        """Return True if no candidate can be better: equal shares next to each other, no fragments."""
        site, first = self.index, way.slots[0]
        if way.fragmented_devices > 0 or any(count != first[1] for _, count in way.slots):
            return False
        if len(way.slots) > -(-self.demand.ranks // max(self.capacities)):
            return False
        inner, racks = site.domain_numbers[_INNER], site.domain_numbers[_RACK]
        if all(inner[at] == inner[first[0]] for at, _ in way.slots):
            return True
        starts = site.domain_starts[_INNER]
        is_alone = all(starts[inner[at] + 1] - starts[inner[at]] == 1 for at, _ in way.slots)
        return is_alone and all(racks[at] == racks[first[0]] for at, _ in way.slots)

    def _domains(self, slots: CandidateSlots, level: Level) -> int:
        if level is Level.NODE:
            return len(slots)
        return len({self.index.domain_numbers[DOMAIN_LEVELS.index(level)][at] for at, _ in slots})


def axes_of(demand: Demand) -> tuple[Axis, ...]:
    """Return the demand's axes, or default axes if only its segments are known."""
    if demand.axes:
        return demand.axes
    groups = demand.ranks // demand.segment
    return (Axis("tp", demand.segment, 10e9), Axis("dp_shard", groups, 1e9))


def _by_bytes(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Return the axes with TP first, then those that send most."""
    rest = [axis for axis in axes if axis.name != "tp"]
    return (*(axis for axis in axes if axis.name == "tp"), *sorted(rest, key=lambda axis: -axis.wire_bytes))


def _picked(parts: list[tuple[int, int, int]], ranks: int, unit: int) -> list[tuple[int, int, int]]:
    """Return the fewest of (size, -start, end) that hold the ranks: the largest, then the tightest for the rest, in
    whole units if these suffice.

    Returns:
        (Start, end, ranks) in the order of choice.
    """
    whole = sorted([(size // unit * unit, start, end) for size, start, end in parts if size >= unit])
    if ranks % unit or sum(size for size, _, _ in whole) < ranks:
        whole = sorted(parts)
    sizes = [size for size, _, _ in whole]
    left, picked = len(whole), list[tuple[int, int, int]]()
    while ranks:
        tightest = bisect_left(sizes, ranks, 0, left)
        left = left - 1
        at = min(tightest, left)
        size, start, end = whole[at]
        picked.append((-start, end, min(size, ranks)))
        ranks -= picked[-1][2]
    return picked
