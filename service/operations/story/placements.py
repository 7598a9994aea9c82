"""Which ranks ran on which node in which generations, in few rows. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Ranges = tuple[tuple[int, int], ...]
"""Ranks as pairs of the first and the last of neighbours."""


@dataclass(frozen=True)
class NodeRanks:
    """Ranks of one generation on one node."""

    node_id: str
    name: str
    ranks: Ranges


@dataclass(frozen=True)
class Place:
    """Generations in which a node had the same ranks."""

    first_generation: int
    last_generation: int
    ranks: Ranges


@dataclass(frozen=True)
class NodeRow:
    """A node, and its ranks over time."""

    node_id: str
    name: str
    places: tuple[Place, ...]


def ranks_by_node(ranks: Iterable[Mapping[str, Any]]) -> tuple[NodeRanks, ...]:
    """Return the nodes of a generation in rank order, from the places of its ranks."""
    names, found = dict[str, str](), dict[str, list[int]]()
    for place in ranks:
        node_id = str(place.get("node_id", ""))
        names.setdefault(node_id, str(place.get("node_name") or node_id))
        found.setdefault(node_id, []).append(int(place["rank"]))
    return tuple(NodeRanks(node_id, names[node_id], to_ranges(numbers)) for node_id, numbers in found.items())


def to_ranges(numbers: Iterable[int]) -> Ranges:
    """Return numbers as pairs of the first and the last of neighbours, in order."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


def node_rows(placements: Mapping[int, Sequence[NodeRanks]], limit: int) -> tuple[tuple[NodeRow, ...], int]:
    """Return the nodes in the order of their first ranks, and the first generation that the rows cover.

    Args:
        placements: generation → its nodes.
        limit: largest number of places. Generations before the newest ones that fit are left out.
    """
    places: dict[str, list[Place]] = {}
    names = dict[str, str]()
    count, first = 0, max(placements, default=0)
    for number in sorted(placements, reverse=True):
        before = {node.node_id: node for node in placements[number]}
        new = [node for node in before.values() if not _continues(places.get(node.node_id), number, node.ranks)]
        if count + len(new) > limit:
            break
        count, first = count + len(new), number
        for node in before.values():
            names.setdefault(node.node_id, node.name)
            of_node = places.setdefault(node.node_id, [])
            if _continues(of_node, number, node.ranks):
                of_node[-1] = replace(of_node[-1], first_generation=number)
            else:
                of_node.append(Place(number, number, node.ranks))
    rows = [NodeRow(node_id, names[node_id], tuple(of_node[::-1])) for node_id, of_node in places.items()]
    return tuple(sorted(rows, key=lambda row: (row.places[0].ranks, row.places[0].first_generation))), first


def _continues(places: Sequence[Place] | None, number: int, ranks: Ranges) -> bool:
    """Return True if the oldest place so far follows generation `number` directly, with the same ranks."""
    return bool(places) and places[-1].first_generation == number + 1 and places[-1].ranks == ranks
