"""Improve a candidate placement by small changes while a change lowers its cost."""

from collections.abc import Iterator, Sequence

from regroup.service.domain.topology import DOMAIN_LEVELS, Level
from regroup.service.policy.placement.candidate import Candidate, CandidateSlots, PlacementJudge

_WORK = 1200
"""Number of changes to try, multiplied by the number of slots."""
_POOL, _NEAR = 24, 10
"""Number of nearest nodes, in addition to the job's own, that are tried, in total and per domain."""
_ENOUGH = 1e-6


def improve(judge: PlacementJudge, way: Candidate, starts: int = 1) -> Candidate:
    """Return the best candidate that changes lead to, taking the first cheaper change each time.

    Args:
        starts: number of candidates that share the work limit.
    """
    tries = _WORK // len(way.slots) // starts
    pool = _pool(judge, way.slots)
    while tries > 0:
        better = None
        for slots in _changes(judge, way.slots, pool):
            tries -= 1
            found = judge.evaluate(slots, every_order=True)
            if found.cost < (*way.cost[:2], way.cost[2] * (1 - _ENOUGH)):
                better = found
                break
            if tries <= 0:
                break
        if better is None:
            return way
        way = better
    return way


def _pool(judge: PlacementJudge, slots: CandidateSlots) -> list[int]:
    """Return the job's nodes and the nearest nodes with capacity; of the last domain the fullest."""
    site, caps = judge.index, judge.capacities
    low, high = judge.node_range(slots[0][0])
    first, own = slots[0][0], {at for at, _ in slots}
    most = _POOL + len(own)
    free, everything = site.free_ranks(judge.demand), site.total_ranks(judge.demand)
    least = min(count for _, count in slots)
    pool = sorted(own)
    for level in range(len(DOMAIN_LEVELS) - 1, -2, -1):
        number = site.domain_numbers[level][first] if level >= 0 else 0
        start, end = (
            (site.domain_starts[level][number], site.domain_starts[level][number + 1]) if level >= 0 else (low, high)
        )
        near = [at for at in range(max(start, low), min(end, high)) if caps[at] and at not in own]
        own.update(near)
        # Nodes in use that hold the smallest slot come first: filling one up is the best change.
        pool += sorted(near, key=lambda at: (caps[at] < least or free[at] == everything[at], free[at], at))[:_NEAR]
        if len(pool) >= most:
            break
    return pool


def _changes(judge: PlacementJudge, slots: CandidateSlots, pool: list[int]) -> Iterator[CandidateSlots]:
    """Yield candidates in which ranks move to another or a new node, a node is replaced, or two slots are swapped."""
    caps, demand = judge.capacities, judge.demand
    grain = demand.segment
    if demand.segment_within is not Level.NODE and grain > 1:
        return  # segments span nodes: a change would split one
    own = {at for at, _ in slots}
    pool = [at for at in pool if at not in own]
    for changed in _with_relocated_ranks(slots, caps, pool, grain):
        if judge.is_spread(changed):
            yield changed
    for at, (_, count) in enumerate(slots):
        for other in pool:
            if caps[other] >= count:
                changed = (*slots[:at], (other, count), *slots[at + 1 :])
                if judge.is_spread(changed):
                    yield changed
    for first in range(len(slots)):
        for second in range(first + 1, len(slots)):
            changed = list(slots)
            changed[first], changed[second] = changed[second], changed[first]
            yield tuple(changed)


def _with_relocated_ranks(
    slots: CandidateSlots, capacity: Sequence[int], pool: list[int], grain: int
) -> Iterator[CandidateSlots]:
    for giver, (node, count) in enumerate(slots):
        amounts = dict.fromkeys((grain, count))
        for amount in amounts:
            for taker, (other, has) in enumerate(slots):
                if taker != giver and capacity[other] >= has + amount:
                    changed = list(slots)
                    changed[taker] = (other, has + amount)
                    changed[giver] = (node, count - amount)
                    yield tuple(slot for slot in changed if slot[1])
        for other in pool:
            if count > grain and capacity[other] >= grain:
                rest = (node, count - grain)
                yield (*slots[:giver], rest, (other, grain), *slots[giver + 1 :])
                for taker, (_, has) in enumerate(slots):
                    if taker != giver and capacity[other] >= has + grain:
                        changed = list(slots)
                        changed[giver], changed[taker] = rest, (other, has + grain)
                        yield tuple(changed)
