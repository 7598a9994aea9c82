"""Ranks of each node over the generations, in few rows. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

Ranges = tuple[tuple[int, int], ...]
"""Ranks as pairs of the first and the last of neighbours."""


class NodeRanks(NamedTuple):
    """Ranks of one generation on one node. A tuple, because large jobs compare many of them."""

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


def node_rows(placements: Mapping[int, Collection[NodeRanks]], limit: int) -> tuple[tuple[NodeRow, ...], int]:
    """Return the nodes in the order of their first ranks, and the first generation that the rows cover.

    Args:
        placements: generation → its nodes.
        limit: largest number of places. Generations before the newest ones that fit are left out.
    """
    ended: list[tuple[NodeRanks, Place]] = []
    last_of: dict[NodeRanks, int] = {}
    count, first = 0, 0
    for number in sorted(placements, reverse=True):
        nodes = frozenset(placements[number])
        begun = nodes - last_of.keys()
        count += len(begun)
        if count > limit:
            break
        for node in last_of.keys() - nodes:
            ended.append((node, Place(first, last_of.pop(node), node.ranks)))
        last_of.update(dict.fromkeys(begun, number))
        first = number
    ended += [(node, Place(first, last, node.ranks)) for node, last in last_of.items()]
    places: dict[tuple[str, str], list[Place]] = {}
    for node, place in ended:
        places.setdefault((node.node_id, node.name), []).append(place)
    rows = [
        NodeRow(node_id, name, tuple(sorted(of_node, key=lambda place: place.first_generation)))
        for (node_id, name), of_node in places.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.places[0].ranks, row.places[0].first_generation))), first
