"""Assign ranks to slots on given nodes with the least predicted communication. Pure."""

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
"""Number of swaps to try, multiplied by the number of slots."""
_ENOUGH = 1e-6


def order_ranks(demand: Demand, slots: Sequence[RankSlot], links: Links | None = None) -> tuple[RankSlot, ...]:
    """Return the same slots in rank order.

    Slots have rank numbers if axes are numbered in another order than in the layout. Of orders with equal cost, the
    given one is kept.

    Args:
        demand: demand of all ranks, with their axes.
        links: link speeds; those of `links_for` if None.
    """
    if len(slots) < 2 or any(slot.ranks % demand.segment for slot in slots):
        return tuple(replace(slot, rank_numbers=()) for slot in slots)
    # Closed nodes keep their ranks and their place among the other nodes.
    site = NodeIndex(
        replace(slot.node, alive=True, is_draining=False, is_control=False, closed_reason="") for slot in slots
    )
    at = {node.id: index for index, node in enumerate(site.nodes)}
    search = Search(demand, site, links or links_for(demand.device))
    given = tuple((at[slot.node.id], slot.ranks) for slot in slots)
    best = search.evaluate(given, every_order=True)
    for other in (sorted(given), sorted(given, key=lambda slot: (search.index.paths[slot[0]], -slot[1]))):
        best = _better(best, search.evaluate(tuple(other), every_order=True))
    best = _best_of_all(search, best, given) if _can_try_all(len(given)) else _exchanged(search, best)
    by_node = {at[slot.node.id]: slot.node for slot in slots}
    numbers = numbers_of(search, best)
    return tuple(
        RankSlot(by_node[index], count, which) for (index, count), which in zip(best.slots, numbers, strict=True)
    )


def numbers_of(search: Search, way: Candidate) -> list[tuple[int, ...]]:
    """Return the ranks of each slot if positions are not numbered as ranks are; otherwise empty tuples."""
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


def _can_try_all(slots: int) -> bool:
    return math.factorial(slots) * slots <= _WORK


def _best_of_all(search: Search, way: Candidate, given: CandidateSlots) -> Candidate:
    for slots in permutations(given):
        way = _better(way, search.evaluate(slots, every_order=True))
    return way


def _exchanged(search: Search, way: Candidate) -> Candidate:
    """Return the best candidate that swaps of two slots lead to, taking the first cheaper swap each time."""
    tries = _WORK // len(way.slots)
    while tries > 0:
        before = way
        for slots in _exchanges(way.slots):
            tries -= 1
            way = _better(way, search.evaluate(slots, every_order=True))
            if way is not before or tries <= 0:
                break
        if way is before:
            break
    return way


def _exchanges(slots: CandidateSlots) -> Iterator[CandidateSlots]:
    for first in range(len(slots)):
        for second in range(first + 1, len(slots)):
            changed = list(slots)
            changed[first], changed[second] = changed[second], changed[first]
            yield tuple(changed)
