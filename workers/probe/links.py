"""How fast ranks reach each other: between pairs of nodes, and round rings."""

from collections.abc import Callable

import torch
from torch import distributed as dist

from regroup.workers.probe.rank_map import RankMap, rounds
from regroup.workers.probe.timing import Clock, gathered

MOST_PAIRS = 2_000
"""Of nodes, that are measured: a cluster with more is measured in part, every node as often."""
_BURSTS = 3


def pairs(clock: Clock, device: torch.device, ground: RankMap, size_bytes: int) -> list[list[float]]:
    """`[node, node, bytes/s of a device one way, seconds of a message]` of pairs of nodes.

    Pairs that have nothing to do with each other exchange at the same time, all their devices at once: what counts is
    what a device gets when all want something. The slowest device's counts.
    """
    found: list[list[float]] = []
    rank = dist.get_rank()
    for meeting in rounds(len(ground.nodes), MOST_PAIRS):
        partner = ground.partner(rank, meeting)
        long_s = clock.own_s(_exchange(device, partner, partner, size_bytes), _BURSTS)
        short_s = clock.own_s(_exchange(device, partner, partner, 4), _BURSTS)
        own = None if partner is None else (long_s, short_s)
        every = gathered(own)
        for first, second in meeting:
            spent = [each for each in (every[one] for one in ground.nodes[first]) if isinstance(each, tuple)]
            slowest = [max(float(each[index]) for each in spent) for index in (0, 1)]
            found.append([first, second, _digits(size_bytes / slowest[0]), _digits(slowest[1])])
    return found


def ring(clock: Clock, device: torch.device, ground: RankMap, size_bytes: int, *, inside: bool) -> tuple[float, float]:
    """Bytes a second that every rank passes on at the same time in the ring of all, or of its node, and seconds of a
    message; of the slowest rank."""
    place = ground.ring(dist.get_rank(), inside=inside)
    before, after = place or (None, None)
    long_s = clock.slowest_s(_exchange(device, after, before, size_bytes))
    short_s = clock.slowest_s(_exchange(device, after, before, 4))
    return _digits(size_bytes / long_s), _digits(short_s)


def _exchange(device: torch.device, to: int | None, sender: int | None, size_bytes: int) -> Callable[[], object]:
    """Send to one and take from one, or do nothing where there is nobody."""
    if to is None or sender is None:
        return lambda: None
    out, into = (torch.zeros(max(1, size_bytes // 4), device=device) for _ in range(2))

    def run() -> None:
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, out, to), dist.P2POp(dist.irecv, into, sender)])
        for work in works:
            work.wait()

    return run


def _digits(value: float) -> float:
    """Four of them: more is noise, and the result has to fit into one message."""
    return float(f"{value:.4g}")
