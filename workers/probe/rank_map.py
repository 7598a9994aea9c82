"""Placement of ranks on nodes, and the schedule of pairwise measurements between nodes. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class RankMap:
    """Ranks by node, in the order of nodes."""

    nodes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, node_of_rank: Sequence[int]) -> "RankMap":
        """Return the map for the node number of each rank."""
        ranks: dict[int, list[int]] = {}
        for rank, node in enumerate(node_of_rank):
            ranks.setdefault(node, []).append(rank)
        return cls(tuple(tuple(ranks[node]) for node in sorted(ranks)))

    @property
    def lanes(self) -> int:
        """Number of ranks of the smallest node: this many ranks have a partner on every other node."""
        return min(len(ranks) for ranks in self.nodes)

    def ring(self, rank: int, *, inside: bool) -> tuple[int, int] | None:
        """Return the previous and the next rank in the ring of all ranks, or of the rank's node.

        None if the rank is alone.
        """
        order = next(ranks for ranks in self.nodes if rank in ranks) if inside else sum(self.nodes, ())
        if len(order) == 1:
            return None
        at = order.index(rank)
        return order[at - 1], order[(at + 1) % len(order)]

    def partner(self, rank: int, pairs: Sequence[tuple[int, int]]) -> int | None:
        """Return the rank with the same index on the node that is paired with this rank's node.

        None if there is none.
        """
        node = next(number for number, ranks in enumerate(self.nodes) if rank in ranks)
        lane = self.nodes[node].index(rank)
        for pair in pairs:
            if node in pair and lane < self.lanes:
                return self.nodes[pair[1 - pair.index(node)]][lane]
        return None


def rounds(nodes: int, most_pairs: int) -> list[list[tuple[int, int]]]:
    """Return rounds of pairs of nodes, with each node at most once per round.

    The rounds contain all pairs, or about `most_pairs` in whole rounds. They follow the circle method of round-robin
    tournaments: one node is fixed, the others rotate.
    """
    slots = [*range(nodes), *([-1] if nodes % 2 else [])]
    found: list[list[tuple[int, int]]] = []
    for _ in range(len(slots) - 1):
        half = len(slots) // 2
        pairs = zip(slots[:half], reversed(slots[half:]), strict=True)
        found.append([(min(pair), max(pair)) for pair in pairs if -1 not in pair])
        slots = [slots[0], slots[-1], *slots[1:-1]]
    whole = max(1, most_pairs // max(1, nodes // 2))
    if whole >= len(found):
        return found
    # Choose evenly: neighbors and distant nodes.
    cuts = [number * len(found) // whole for number in range(whole + 1)]
    return [found[first] for first, _ in pairwise(cuts)]
