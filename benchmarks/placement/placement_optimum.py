"""Placements compared with all alternatives, on small random clusters that permit exhaustive search."""

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence

from benchmarks.placement.placement_model import Spot, model_of, spelled_out, spots_of
from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import Node
from regroup.service.policy.placement.link_speeds import GPU_LINKS
from regroup.service.policy.placement.place import Demand, Placement, place
from regroup.service.policy.placement.search import BROKEN_COSTS, BROKEN_NODE_COSTS
from regroup.service.policy.placement.traffic import axes


def gaps(cases: int, seed: int) -> list[float]:
    """Return the relative excess of each placement's cost over the optimum, on small random clusters."""
    chance = random.Random(seed)
    found = list[float]()
    while len(found) < cases:
        nodes, demand = _small_case(chance)
        placed = place(demand, nodes, GPU_LINKS)
        if isinstance(placed, Placement):
            found.append(_gap(demand, nodes, placed))
    return found


def _small_case(chance: random.Random) -> tuple[list[Node], Demand]:
    count = chance.randint(3, 5)
    racks = chance.randint(1, 3)
    nodes = list[Node]()
    for at in range(count):
        rack = chance.randrange(racks)
        size = chance.choice((2, 4))
        name = f"n{at}"
        where = ("z", f"b{rack % 2}", f"r{rack}", f"g{rack}" if chance.random() < 0.2 else f"g-{name}")
        nodes.append(Node(name, name, "", cpus=size, gpus=size, free_cpus=size, free_gpus=chance.randint(0, size),
                          domains=where))  # fmt: skip
    layout = chance.choice(
        (Layout(dp_shard=2), Layout(dp_shard=3), Layout(dp_shard=4), Layout(dp_shard=5), Layout(dp_replicate=6),
         Layout(tp=2, dp_shard=2), Layout(tp=2, dp_shard=3), Layout(tp=2, pp=2), Layout(pp=2, dp_shard=2),
         Layout(pp=2, dp_shard=3), Layout(pp=3, dp_shard=2), Layout(dp_replicate=2, dp_shard=2),
         Layout(dp_replicate=3, dp_shard=2), Layout(tp=2, dp_shard=2, dp_replicate=2), Layout(tp=2, pp=2, dp_shard=2))
    )  # fmt: skip
    work = model_of(chance.choice((0.1, 1, 10)), 16, chance.choice((1024, 4096)), micro_batches=chance.choice((1, 8)))
    return nodes, Demand(layout.world_size, layout.tp, "cuda", 1, axes=axes(layout, work))


def _gap(demand: Demand, nodes: Sequence[Node], placed: Placement) -> float:
    index = {node.id: at for at, node in enumerate(nodes)}
    domains = [node.domains for node in nodes]
    got = _cost(demand, nodes, spots_of(placed, index, domains))
    best = min(_cost(demand, nodes, spots) for spots in _every_way(demand, nodes))
    assert got[0] == best[0], f"the placement breaks up more nodes than necessary: {got[0]} instead of {best[0]}"
    return got[1] / best[1] - 1 if best[1] else 0.0


def _every_way(demand: Demand, nodes: Sequence[Node]) -> Iterator[list[Spot]]:
    """Yield every combination of segments and nodes that fits."""
    segments = demand.ranks // demand.segment
    capacity = [int(node.free_gpus) // demand.segment for node in nodes]
    spots = [Spot(at, node.domains) for at, node in enumerate(nodes)]
    for chosen in itertools.product([at for at, each in enumerate(capacity) if each], repeat=segments):
        if all(chosen.count(at) <= capacity[at] for at in set(chosen)):
            yield [spots[at] for at in chosen for _ in range(demand.segment)]


def _cost(demand: Demand, nodes: Sequence[Node], spots: Sequence[Spot]) -> tuple[float, float]:
    """Return the number of broken-up nodes beyond one, and the weighted cost.

    The cost combines communication and leftover devices with the weights of the policy.
    """
    left_over = nodes_broken = 0.0
    for at, count in Counter(spot.node for spot in spots).items():
        free, whole = nodes[at].free_gpus, nodes[at].gpus
        left_over += free - count - (free if free < whole else 0)
        nodes_broken += free == whole and count < free
    factor = 1 + BROKEN_COSTS * left_over / demand.ranks + BROKEN_NODE_COSTS * nodes_broken
    return max(0, nodes_broken - 1), spelled_out(demand.axes, spots) * factor
