"""What a step's communication costs where its ranks are: a prediction, to tell placements apart.

Each axis of a layout is a set of groups whose members pass bytes to the next one, in a ring or along a chain. A hop
between two domains loads the way out of every domain it leaves. A domain that holds k of the job's ranks gives them k
devices' share of its way out, and the axis takes as long as its most loaded way; axes take turns. Overlap with
computation is not modelled: it hides time of all placements alike.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import log2

from regroup.service.domain.topology import DOMAIN_LEVELS, Level
from regroup.service.policy.placement.link_speeds import Links

_UPWARD = tuple(reversed(DOMAIN_LEVELS))


@dataclass(frozen=True)
class Axis:
    """One dimension of a layout, as its ranks talk along it."""

    name: str
    """`tp`, `cp`, `dp_shard`, `dp_replicate` or `pp`."""
    degree: int
    wire_bytes: float
    """That a rank sends to the next one of its group in a step."""
    messages: float = 0.0
    """Collectives, or transfers, that wait for each other in a step."""
    is_chain: bool = False
    """The last does not send to the first, and all of it goes back as well: a pipeline."""


@dataclass(frozen=True)
class AxisCost:
    """What one axis costs at a placement."""

    name: str
    degree: int
    wire_bytes: float
    leaves: Level
    """The largest kind of domain that its groups leave; `device`: they stay on their nodes."""
    seconds: float


@dataclass(frozen=True)
class RankMap:
    """Seats of one placement in the order of their positions: what the prediction needs of them."""

    counts: tuple[int, ...]
    """Ranks of each."""
    domains: tuple[tuple[int, ...], ...]
    """Of each: numbers of its domains, of `DOMAIN_LEVELS`."""


def communication_seconds(axes: Sequence[Axis], ground: RankMap, links: Links) -> float:
    """Predicted seconds of a step's communication. `axes`: the innermost first, as positions are numbered."""
    return sum(cost.seconds for cost in axis_costs(axes, ground, links))


def axis_costs(axes: Sequence[Axis], ground: RankMap, links: Links) -> list[AxisCost]:
    """Predicted cost of each axis with more than one rank, in their order."""
    starts = [0, *accumulate(ground.counts)]
    shares = _shares(ground)
    found: list[AxisCost] = []
    stride = 1
    for axis in axes:
        if axis.degree > 1:
            hops = _hops(axis, stride, starts)
            found.append(_cost(axis, hops, ground, shares, links))
        stride *= axis.degree
    return found


def _hops(axis: Axis, stride: int, starts: Sequence[int]) -> dict[tuple[int, int], int]:
    """(From seat, to seat) → how many ranks of the one send to ranks of the other; hops inside of a seat are left out.

    The next member of a position is `stride` further, but for the last one of its group: positions of a seat fall into
    few runs with the same distance, and a run is dealt to seats as a whole.
    """
    block, back = stride * axis.degree, stride * (axis.degree - 1)
    hops: dict[tuple[int, int], int] = {}
    for seat in range(len(starts) - 1):
        first, end = starts[seat], starts[seat + 1]
        if first % block == 0 and end % block == 0:
            continue
        at = first
        while at < end:
            turn = at // block * block + back
            if at < turn:
                until = min(end, turn)
                _deal(hops, seat, max(at + stride, end), until + stride, starts)
            else:
                until = min(end, turn + stride)
                if not axis.is_chain:
                    _deal(hops, seat, at - back, min(until - back, first), starts)
            at = until
    return hops


def _deal(hops: dict[tuple[int, int], int], seat: int, low: int, high: int, starts: Sequence[int]) -> None:
    """Count a hop from `seat` to each position in [low, high)."""
    if low >= high:
        return
    to = bisect_right(starts, low) - 1
    while low < high:
        until = min(high, starts[to + 1])
        hops[seat, to] = hops.get((seat, to), 0) + until - low
        low, to = until, to + 1


def _shares(ground: RankMap) -> list[dict[int, int]]:
    """Of each of `_UPWARD`: domain → ranks of the job in it."""
    shares: list[dict[int, int]] = []
    for level in range(len(DOMAIN_LEVELS) - 1, -1, -1):
        share: dict[int, int] = {}
        for count, domains in zip(ground.counts, ground.domains, strict=True):
            share[domains[level]] = share.get(domains[level], 0) + count
        shares.append(share)
    return shares


def _cost(
    axis: Axis, hops: dict[tuple[int, int], int], ground: RankMap, shares: list[dict[int, int]], links: Links
) -> AxisCost:
    out, into = dict[int, int](), dict[int, int]()
    for (a, b), count in hops.items():
        out[a] = out.get(a, 0) + count
        into[b] = into.get(b, 0) + count
    each = (2.0 if axis.is_chain else 1.0) / links[Level.DEVICE].bytes_per_s
    leaves = Level.DEVICE
    if hops:
        leaves = Level.NODE
        each = max(each, _worst(axis, out, into, ground.counts) / links[leaves].bytes_per_s)
    pairs = [(ground.domains[a], ground.domains[b], count) for (a, b), count in hops.items()]
    for level, share in zip(_UPWARD, shares, strict=True):
        index = DOMAIN_LEVELS.index(level)
        pairs = [pair for pair in pairs if pair[0][index] != pair[1][index]]
        if not pairs:
            break
        out, into = {}, {}
        for a, b, count in pairs:
            out[a[index]] = out.get(a[index], 0) + count
            into[b[index]] = into.get(b[index], 0) + count
        leaves = level
        each = max(each, _worst(axis, out, into, share) / links[level].bytes_per_s)
    wait_s = axis.messages * log2(axis.degree) * links[leaves].latency_s
    return AxisCost(axis.name, axis.degree, axis.wire_bytes, leaves, axis.wire_bytes * each + wait_s)


def _worst(axis: Axis, out: dict[int, int], into: dict[int, int], share: dict[int, int] | tuple[int, ...]) -> float:
    """The largest load of a domain's way out, in rings a device."""
    if axis.is_chain:
        both = out.keys() | into.keys()
        return max((out.get(domain, 0) + into.get(domain, 0)) / share[domain] for domain in both)
    return max(
        max(count / share[domain] for domain, count in out.items()),
        max(count / share[domain] for domain, count in into.items()),
    )
