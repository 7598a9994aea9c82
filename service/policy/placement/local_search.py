"""Small changes to a way of placing a job, as long as one makes it better."""

from collections.abc import Iterator, Sequence

from regroup.service.domain.topology import DOMAIN_LEVELS, Level
from regroup.service.policy.placement.candidate import Candidate, CandidateSlots, PlacementJudge

_WORK = 1200
"""Changes tried, times the seats of the job."""
_POOL, _NEAR = 24, 10
"""Nodes beside the job's own that are looked at, and so many of one domain."""
_ENOUGH = 1e-6


def improve(judge: PlacementJudge, way: Candidate, starts: int = 1) -> Candidate:
    """The best way that changes lead to, each of them the first that costs less. `starts`: the work is shared by."""
    tries = _WORK // len(way.slots) // starts
    pool = _pool(judge, way.slots)
    while tries > 0:
        better = None
        for seats in _changes(judge, way.slots, pool):
            tries -= 1
            found = judge.evaluate(seats, every_order=True)
            if found.cost < (*way.cost[:2], way.cost[2] * (1 - _ENOUGH)):
                better = found
                break
            if tries <= 0:
                break
        if better is None:
            return way
        way = better
    return way


def _pool(judge: PlacementJudge, seats: CandidateSlots) -> list[int]:
    """The job's nodes, and those with room nearest to its first one, of the last domain the fullest."""
    site, caps = judge.index, judge.capacities
    low, high = judge.node_range(seats[0][0])
    first, own = seats[0][0], {at for at, _ in seats}
    most = _POOL + len(own)
    free, everything = site.free_ranks(judge.demand), site.total_ranks(judge.demand)
    least = min(count for _, count in seats)
    pool = sorted(own)
    for level in range(len(DOMAIN_LEVELS) - 1, -2, -1):
        number = site.domain_numbers[level][first] if level >= 0 else 0
        start, end = (
            (site.domain_starts[level][number], site.domain_starts[level][number + 1]) if level >= 0 else (low, high)
        )
        near = [at for at in range(max(start, low), min(end, high)) if caps[at] and at not in own]
        own.update(near)
        # Nodes in use that hold the smallest seat come first: to fill one up is the best that can be.
        pool += sorted(near, key=lambda at: (caps[at] < least or free[at] == everything[at], free[at], at))[:_NEAR]
        if len(pool) >= most:
            break
    return pool


def _changes(judge: PlacementJudge, seats: CandidateSlots, pool: list[int]) -> Iterator[CandidateSlots]:
    """Ranks moved to another node of the job or a new one, a node for another, two seats exchanged."""
    caps, demand = judge.capacities, judge.demand
    grain = demand.segment
    if demand.segment_within is not Level.NODE and grain > 1:
        return  # segments lie across nodes: a change would tear one
    own = {at for at, _ in seats}
    pool = [at for at in pool if at not in own]
    for changed in _moved(seats, caps, pool, grain):
        if judge.is_spread(changed):
            yield changed
    for at, (_, count) in enumerate(seats):
        for other in pool:
            if caps[other] >= count:
                changed = (*seats[:at], (other, count), *seats[at + 1 :])
                if judge.is_spread(changed):
                    yield changed
    for first in range(len(seats)):
        for second in range(first + 1, len(seats)):
            changed = list(seats)
            changed[first], changed[second] = changed[second], changed[first]
            yield tuple(changed)


def _moved(seats: CandidateSlots, room: Sequence[int], pool: list[int], grain: int) -> Iterator[CandidateSlots]:
    for giver, (node, count) in enumerate(seats):
        amounts = dict.fromkeys((grain, count))
        for amount in amounts:
            for taker, (other, has) in enumerate(seats):
                if taker != giver and room[other] >= has + amount:
                    changed = list(seats)
                    changed[taker] = (other, has + amount)
                    changed[giver] = (node, count - amount)
                    yield tuple(seat for seat in changed if seat[1])
        for other in pool:
            if count > grain and room[other] >= grain:
                rest = (node, count - grain)
                yield (*seats[:giver], rest, (other, grain), *seats[giver + 1 :])
                for taker, (_, has) in enumerate(seats):
                    if taker != giver and room[other] >= has + grain:
                        changed = list(seats)
                        changed[giver], changed[taker] = rest, (other, has + grain)
                        yield tuple(changed)
