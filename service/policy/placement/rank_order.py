"""Which ranks sit where on nodes that are settled: as placement has it, so that they talk least. Pure."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations

from regroup.service.policy.placement.candidate import Candidate, CandidateSlots
from regroup.service.policy.placement.demand import Demand, RankSlot
from regroup.service.policy.placement.link_speeds import Links, links_for
from regroup.service.policy.placement.node_index import NodeIndex
from regroup.service.policy.placement.search import Search

_WORK = 1200
"""Exchanges tried, times the seats of the job."""
_ENOUGH = 1e-6


def order_ranks(demand: Demand, seats: Sequence[RankSlot], links: Links | None = None) -> tuple[RankSlot, ...]:
    """The same seats in the order of their ranks, which they name where axes are numbered otherwise than the layout has
    it. Of orders that cost the same, the given one.

    Args:
        demand: of all ranks, with their axes.
        links: how fast nodes are connected; as `links_for` has it if absent.
    """
    if len(seats) < 2 or any(seat.ranks % demand.segment for seat in seats):
        return tuple(replace(seat, rank_numbers=()) for seat in seats)
    # Nodes that take nothing new keep what they have, and their place among the others.
    site = NodeIndex(
        replace(seat.node, alive=True, is_draining=False, is_control=False, closed_reason="") for seat in seats
    )
    at = {node.id: index for index, node in enumerate(site.nodes)}
    search = Search(demand, site, links or links_for(demand.device))
    given = tuple((at[seat.node.id], seat.ranks) for seat in seats)
    best = search.evaluate(given, every_order=True)
    for other in (sorted(given), sorted(given, key=lambda seat: (search.index.paths[seat[0]], -seat[1]))):
        best = _better(best, search.evaluate(tuple(other), every_order=True))
    best = _best_of_all(search, best, given) if _can_try_all(len(given)) else _exchanged(search, best)
    by_node = {at[seat.node.id]: seat.node for seat in seats}
    numbers = numbers_of(search, best)
    return tuple(
        RankSlot(by_node[index], count, which) for (index, count), which in zip(best.slots, numbers, strict=True)
    )


def numbers_of(search: Search, way: Candidate) -> list[tuple[int, ...]]:
    """Ranks of each seat where positions are not numbered as ranks are; nothing where they are."""
    if way.axes == search.axes:
        return [()] * len(way.slots)
    strides, stride = dict[str, int](), 1
    for axis in search.axes:
        strides[axis.name] = stride
        stride *= axis.degree
    ranks = [0]
    for axis in way.axes:
        ranks = [rank + digit * strides[axis.name] for digit in range(axis.degree) for rank in ranks]
    found, at = list[tuple[int, ...]](), 0
    for _, count in way.slots:
        found.append(tuple(ranks[at : at + count]))
        at += count
    return found


def _better(one: Candidate, other: Candidate) -> Candidate:
    return other if other.communication_s < one.communication_s * (1 - _ENOUGH) else one


def _can_try_all(seats: int) -> bool:
    return math.factorial(seats) * seats <= _WORK


def _best_of_all(search: Search, way: Candidate, given: CandidateSlots) -> Candidate:
    for seats in permutations(given):
        way = _better(way, search.evaluate(seats, every_order=True))
    return way


def _exchanged(search: Search, way: Candidate) -> Candidate:
    """The best way that exchanges of two seats lead to, each of them the first that costs less."""
    tries = _WORK // len(way.slots)
    while tries > 0:
        before = way
        for seats in _exchanges(way.slots):
            tries -= 1
            way = _better(way, search.evaluate(seats, every_order=True))
            if way is not before or tries <= 0:
                break
        if way is before:
            break
    return way


def _exchanges(seats: CandidateSlots) -> Iterator[CandidateSlots]:
    for first in range(len(seats)):
        for second in range(first + 1, len(seats)):
            changed = list(seats)
            changed[first], changed[second] = changed[second], changed[first]
            yield tuple(changed)
