"""Predict the communication time per step of a placement, to compare placements.

Each axis of a layout is a set of groups. The members of a group send bytes to the next member, in a ring or along a
chain. A hop between two domains loads the uplink of every domain that it leaves. A domain with k of the job's ranks
provides k devices' share of its uplink. An axis takes as long as its most loaded uplink; axes communicate one after the
other. Overlap with computation is not modelled: it hides the same time in all placements.
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
    """One dimension of a layout, with its communication."""

    name: str
    """`tp`, `cp`, `dp_shard`, `dp_replicate` or `pp`."""
    degree: int
    wire_bytes: float
    """Bytes that a rank sends to the next one of its group per step."""
    messages: float = 0.0
    """Number of consecutive collectives, or transfers, per step."""
    is_chain: bool = False
    """True for a pipeline: the last member does not send to the first, and all bytes also return."""


@dataclass(frozen=True)
class AxisCost:
    """Cost of one axis at a placement."""

    name: str
    degree: int
    wire_bytes: float
    leaves: Level
    """Largest kind of domain that its groups leave; `device` if they stay on their nodes."""
    seconds: float


@dataclass(frozen=True)
class RankMap:
    """Slots of one placement in the order of their positions, as the prediction needs them."""

    counts: tuple[int, ...]
    """Number of ranks of each slot."""
    domains: tuple[tuple[int, ...], ...]
    """Numbers of the slot's domains, one for each of `DOMAIN_LEVELS`."""


def communication_seconds(axes: Sequence[Axis], ground: RankMap, links: Links) -> float:
    """Return the predicted communication time per step in seconds.

    Args:
        axes: the innermost first, as positions are numbered.
    """
    return sum(cost.seconds for cost in axis_costs(axes, ground, links))


def axis_costs(axes: Sequence[Axis], ground: RankMap, links: Links) -> list[AxisCost]:
    """Return the predicted cost of each axis with more than one rank, in order."""
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
    """Return (from slot, to slot) → number of ranks that send from one to the other; hops inside a slot are omitted.

    The next member of a position is `stride` further, except for the last one of its group. The positions of a slot
    form few runs with the same distance, and a run is distributed to slots as a whole.
    """
    block, back = stride * axis.degree, stride * (axis.degree - 1)
    hops: dict[tuple[int, int], int] = {}
    for slot in range(len(starts) - 1):
        first, end = starts[slot], starts[slot + 1]
        if first % block == 0 and end % block == 0:
            continue
        at = first
        while at < end:
            turn = at // block * block + back
            if at < turn:
                until = min(end, turn)
                _deal(hops, slot, max(at + stride, end), until + stride, starts)
            else:
                until = min(end, turn + stride)
                if not axis.is_chain:
                    _deal(hops, slot, at - back, min(until - back, first), starts)
            at = until
    return hops


def _deal(hops: dict[tuple[int, int], int], slot: int, low: int, high: int, starts: Sequence[int]) -> None:
    """Count a hop from `slot` to each position in [low, high)."""
    if low >= high:
        return
    to = bisect_right(starts, low) - 1
    while low < high:
        until = min(high, starts[to + 1])
        hops[slot, to] = hops.get((slot, to), 0) + until - low
        low, to = until, to + 1


def _shares(ground: RankMap) -> list[dict[int, int]]:
    """Return for each of `_UPWARD`: domain → number of the job's ranks in it."""
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
    """Return the largest load of a domain's uplink, in rings per device."""
    if axis.is_chain:
        both = out.keys() | into.keys()
        return max((out.get(domain, 0) + into.get(domain, 0)) / share[domain] for domain in both)
    return max(
        max(count / share[domain] for domain, count in out.items()),
        max(count / share[domain] for domain, count in into.items()),
    )
