"""Which ranks share a node, and which nodes meet when: what the measurements of ways go by. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class RankMap:
    """Ranks by node, in the order of nodes."""

    nodes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, node_of_rank: Sequence[int]) -> "RankMap":
        """From the number of each rank's node."""
        ranks: dict[int, list[int]] = {}
        for rank, node in enumerate(node_of_rank):
            ranks.setdefault(node, []).append(rank)
        return cls(tuple(tuple(ranks[node]) for node in sorted(ranks)))

    @property
    def lanes(self) -> int:
        """Ranks of the node that has fewest: so many have a partner on every other node."""
        return min(len(ranks) for ranks in self.nodes)

    def ring(self, rank: int, *, inside: bool) -> tuple[int, int] | None:
        """Who comes before and after a rank in the ring of all, or of its node; None where it is alone."""
        order = next(ranks for ranks in self.nodes if rank in ranks) if inside else sum(self.nodes, ())
        if len(order) == 1:
            return None
        at = order.index(rank)
        return order[at - 1], order[(at + 1) % len(order)]

    def partner(self, rank: int, pairs: Sequence[tuple[int, int]]) -> int | None:
        """The rank at the same place of the node that a rank's node meets; None where it has none."""
        node = next(number for number, ranks in enumerate(self.nodes) if rank in ranks)
        lane = self.nodes[node].index(rank)
        for pair in pairs:
            if node in pair and lane < self.lanes:
                return self.nodes[pair[1 - pair.index(node)]][lane]
        return None


def rounds(nodes: int, most_pairs: int) -> list[list[tuple[int, int]]]:
    """Who meets whom, round by round, every node once a round: all pairs, or as many whole rounds as make `most_pairs`.

    The circle method of tournaments: one stands still, the others go round.
    """
    seats = [*range(nodes), *([-1] if nodes % 2 else [])]
    found: list[list[tuple[int, int]]] = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        pairs = zip(seats[:half], reversed(seats[half:]), strict=True)
        found.append([(min(pair), max(pair)) for pair in pairs if -1 not in pair])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    whole = max(1, most_pairs // max(1, nodes // 2))
    if whole >= len(found):
        return found
    # Evenly over all of them: neighbours and those far away.
    cuts = [number * len(found) // whole for number in range(whole + 1)]
    return [found[first] for first, _ in pairwise(cuts)]
