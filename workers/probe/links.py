"""Speed of links between ranks: between pairs of nodes, and around rings."""

from collections.abc import Callable

import torch
from torch import distributed as dist

from regroup.workers.probe.rank_map import RankMap, rounds
from regroup.workers.probe.timing import Clock, gathered

MOST_PAIRS = 2_000
"""Maximum number of measured pairs of nodes. In a larger cluster, a subset is measured, with each node equally often.
"""
_BURSTS = 3


def pairs(clock: Clock, device: torch.device, rank_map: RankMap, size_bytes: int) -> list[list[float]]:
    """Return `[node, node, bytes/s of a device one way, seconds of a message]` for pairs of nodes.

    Disjoint pairs exchange at the same time, with all their devices at once. So the result is a device's share of the
    link under load. The slowest device counts.
    """
    found: list[list[float]] = []
    rank = dist.get_rank()
    for round_of_pairs in rounds(len(rank_map.nodes), MOST_PAIRS):
        partner = rank_map.partner(rank, round_of_pairs)
        long_s = clock.own_s(_exchange(device, partner, partner, size_bytes), _BURSTS)
        short_s = clock.own_s(_exchange(device, partner, partner, 4), _BURSTS)
        own = None if partner is None else (long_s, short_s)
        every = gathered(own)
        for first, second in round_of_pairs:
            spent = [each for each in (every[one] for one in rank_map.nodes[first]) if isinstance(each, tuple)]
            slowest = [max(float(each[index]) for each in spent) for index in (0, 1)]
            found.append([first, second, _digits(size_bytes / slowest[0]), _digits(slowest[1])])
    return found


def ring(
    clock: Clock, device: torch.device, rank_map: RankMap, size_bytes: int, *, inside: bool
) -> tuple[float, float]:
    """Return the bandwidth (bytes/s) and latency (s) of a ring over all ranks, or over the ranks of each node.

    All ranks send at the same time. The slowest rank counts.
    """
    neighbors = rank_map.ring(dist.get_rank(), inside=inside)
    previous, following = neighbors or (None, None)
    long_s = clock.slowest_s(_exchange(device, following, previous, size_bytes))
    short_s = clock.slowest_s(_exchange(device, following, previous, 4))
    return _digits(size_bytes / long_s), _digits(short_s)


def _exchange(device: torch.device, to: int | None, sender: int | None, size_bytes: int) -> Callable[[], object]:
    """Return a function that sends to one rank and receives from one; it does nothing if there is no partner."""
    if to is None or sender is None:
        return lambda: None
    out, into = (torch.zeros(max(1, size_bytes // 4), device=device) for _ in range(2))

    def run() -> None:
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, out, to), dist.P2POp(dist.irecv, into, sender)])
        for work in works:
            work.wait()

    return run


def _digits(value: float) -> float:
    """Round to four digits: more is noise, and the result must fit into one message."""
    return float(f"{value:.4g}")
