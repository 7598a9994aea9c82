"""Communication time of a placement, computed rank by rank: slow, simple, and independent of the code under test."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from regroup.service.domain.topology import DOMAIN_LEVELS, Level
from regroup.service.policy.placement.communication_cost import Axis
from regroup.service.policy.placement.link_speeds import GPU_LINKS, Links
from regroup.service.policy.placement.place import Placement
from regroup.service.policy.placement.traffic import TrainingWork


def model_of(
    billions: float, layers: int, hidden: int, *, micro_batches: int, recomputes: bool = False
) -> TrainingWork:
    """Return the work of a transformer in bf16 with samples of 4,096 tokens."""
    return TrainingWork(
        billions * 1e9, layers, hidden, hidden // 4, 4096, micro_batches, recomputes=recomputes, gradient_bytes=4
    )


@dataclass(frozen=True)
class Spot:
    """Location of one rank: its node, and the domains that contain the node, the largest first."""

    node: int
    domains: tuple[str, ...]


def spelled_out(axes_: Sequence[Axis], spots: Sequence[Spot], links: Links = GPU_LINKS) -> float:
    """Predict the communication time of a step in seconds for ranks at these spots, rank by rank and hop by hop."""
    total, stride = 0.0, 1
    for axis in axes_:
        if axis.degree > 1:
            total += _axis_s(axis, stride, spots, links)
        stride *= axis.degree
    return total


def _axis_s(axis: Axis, stride: int, spots: Sequence[Spot], links: Links) -> float:
    both = 2 if axis.is_chain else 1
    each_s, widest = both * axis.wire_bytes / links[Level.DEVICE].bytes_per_s, Level.DEVICE
    hops = list[tuple[Spot, Spot]]()
    for rank, spot in enumerate(spots):
        at = rank // stride % axis.degree
        if at < axis.degree - 1:
            hops.append((spot, spots[rank + stride]))
        elif not axis.is_chain:
            hops.append((spot, spots[rank - at * stride]))
    for level, name in [(Level.NODE, _node), *((level, _named(level)) for level in reversed(DOMAIN_LEVELS))]:
        inside = Counter(name(spot) for spot in spots)
        out = Counter(name(a) for a, b in hops if name(a) != name(b))
        into = Counter(name(b) for a, b in hops if name(a) != name(b))
        if not out:
            continue
        widest = level
        for domain, ranks in inside.items():
            load = out[domain] + into[domain] if axis.is_chain else max(out[domain], into[domain])
            each_s = max(each_s, axis.wire_bytes * load / (ranks * links[level].bytes_per_s))
    return each_s + axis.messages * math.log2(axis.degree) * links[widest].latency_s


def _node(spot: Spot) -> object:
    return spot.node


def _named(level: Level) -> Callable[[Spot], object]:
    depth = DOMAIN_LEVELS.index(level) + 1
    return lambda spot: spot.domains[:depth]


def spots_of(placement: Placement, nodes: Mapping[str, int], domains: Sequence[tuple[str, ...]]) -> list[Spot]:
    """Return the spot of each rank, in the order of the placement's rank numbers."""
    found = dict[int, Spot]()
    for slot in placement.slots:
        spot = Spot(nodes[slot.node.id], domains[nodes[slot.node.id]])
        for rank in slot.rank_numbers or range(len(found), len(found) + slot.ranks):
            found[rank] = spot
    return [found[rank] for rank in range(len(found))]
