"""Choose the nodes of a job: all or none, with the least predicted communication and little fragmentation."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from regroup.service.domain.topology import DOMAIN_LEVELS, Level, Node
from regroup.service.policy.placement.communication_cost import RankMap, axis_costs
from regroup.service.policy.placement.demand import (
    Demand,
    NodeCapacity,
    Placement,
    PlacementChoice,
    RankSlot,
    RejectedPlacement,
    Shortage,
    Unplaceable,
)
from regroup.service.policy.placement.link_speeds import Links, links_for
from regroup.service.policy.placement.node_index import NodeIndex, totals
from regroup.service.policy.placement.rank_order import numbers_of
from regroup.service.policy.placement.search import Candidate, Search
from regroup.service.policy.placement.unschedulable import describe_closed_nodes, node_capacity, table, unplaceable

__all__ = [
    "Demand",
    "NodeCapacity",
    "NodeIndex",
    "Placement",
    "PlacementChoice",
    "RankSlot",
    "RejectedPlacement",
    "Shortage",
    "Unplaceable",
    "fits_empty_cluster",
    "place",
    "place_replacements",
    "with_placement",
]  # fmt: skip

_MAX_REJECTED = 4
"""Maximum number of rejected alternatives to report."""


def place(demand: Demand, nodes: Iterable[Node], links: Links | None = None) -> Placement | Unplaceable:
    """Return nodes for all ranks, or the missing resources.

    Args:
        nodes: nodes of any cluster, or a `NodeIndex` of one cluster that the caller reuses for several jobs.
        links: link speeds; those of `links_for` if None.
    """
    site = NodeIndex.for_demand(demand, nodes)
    links = links or links_for(demand.device)
    if _largest(demand, site) < demand.ranks:
        return unplaceable(demand, site)
    search = Search(demand, site, links)
    best, others = search.find_best()
    if best is None:
        return unplaceable(demand, site)
    return _placement(search, best, others)


def place_replacements(
    demand: Demand, ranks: Sequence[int], nodes: Iterable[Node], neighbours: Sequence[Sequence[str]] = ()
) -> Placement | Unplaceable:
    """Return one node for each lost slot, in order.

    The largest slot chooses first: the node nearest to the remaining nodes, then the tightest fit.

    Args:
        ranks: number of ranks of each lost slot.
        neighbours: domains of the remaining nodes, as `domains_of` returns them.
    """
    site = NodeIndex.for_demand(demand, nodes)
    free = site.free_ranks(demand)
    grain = demand.segment if demand.segment_within is Level.NODE else 1
    left, found = set(range(len(site.nodes))), dict[int, Node]()
    for slot, count in sorted(enumerate(ranks), key=lambda item: -item[1]):
        enough = [at for at in left if free[at] // grain * grain >= count and _may_be_at(demand, site, at, neighbours)]
        if not enough:
            inside = f" in the {demand.required} of the others" if demand.required and neighbours else ""
            message = f"no other node{inside} has capacity for {count} of {demand.ranks} ranks"
            capacities = tuple(node_capacity(demand, site, at) for at in site.first_by_name(len(site.nodes)))
            return Unplaceable(
                Shortage.RESOURCES,
                f"{message}{table(capacities, len(capacities))}{describe_closed_nodes(site.closed)}",
                capacities,
            )
        best = min(enough, key=lambda at: (_distance(site, at, neighbours), free[at], site.nodes[at].name, at))
        found[slot] = site.nodes[best]
        left.discard(best)
    return Placement(tuple(RankSlot(found[slot], count) for slot, count in enumerate(ranks)))


def fits_empty_cluster(demand: Demand, nodes: Iterable[Node]) -> bool:
    """Return True if the demand fits into the empty cluster."""
    site = NodeIndex.for_demand(demand, nodes)
    if not site.has_level(demand.required):
        return False
    level = -1 if demand.required not in DOMAIN_LEVELS else DOMAIN_LEVELS.index(demand.required)
    if demand.required is Level.NODE:
        return max(site.total_ranks(demand), default=0) // demand.segment * demand.segment >= demand.ranks
    return max(totals(demand, site.total_ranks(demand), site.domain_starts, level), default=0) >= demand.ranks


def with_placement(nodes: Sequence[Node], demand: Demand, placement: Placement) -> list[Node]:
    """Return the nodes after the placement is allocated."""
    taken = {slot.node.id: slot.ranks for slot in placement.slots}
    return [
        replace(
            node,
            free_cpus=node.free_cpus - taken[node.id] * demand.cpus,
            free_gpus=node.free_gpus - (taken[node.id] if demand.device == "cuda" else 0),
            free_memory_bytes=node.free_memory_bytes - taken[node.id] * demand.memory_bytes,
        )
        if node.id in taken
        else node
        for node in nodes
    ]


def _largest(demand: Demand, site: NodeIndex) -> int:
    """Return the largest number of ranks that fit into one allowed domain."""
    if not site.has_level(demand.required):
        return 0
    if demand.required is Level.NODE:
        return max(site.free_ranks(demand), default=0) // demand.segment * demand.segment
    level = -1 if demand.required is None else DOMAIN_LEVELS.index(demand.required)
    return max(site.domain_sums(demand, level), default=0)


def _placement(search: Search, best: Candidate, others: Sequence[Candidate]) -> Placement:
    site, numbers = search.index, numbers_of(search, best)
    slots = tuple(
        RankSlot(site.nodes[at], count, which) for (at, count), which in zip(best.slots, numbers, strict=True)
    )
    found = axis_costs(best.axes, _ground(search, best), search.links)
    choice = PlacementChoice(
        _inside(site, best),
        best.communication_s,
        tuple(found),
        best.fragmented_devices,
        _rejected(search, best, others),
    )
    return Placement(slots, choice)


def _ground(search: Search, way: Candidate) -> RankMap:
    numbers = search.index.domain_numbers
    domains = tuple(tuple(level[at] for level in numbers) for at, _ in way.slots)
    return RankMap(tuple(count for _, count in way.slots), domains)


def _inside(site: NodeIndex, way: Candidate) -> str:
    """Return the smallest known domain that contains all slots."""
    first = way.slots[0][0]
    if len(way.slots) == 1:
        return site.domain_name(Level.NODE, first)
    for index in range(len(DOMAIN_LEVELS) - 1, -1, -1):
        numbers = site.domain_numbers[index]
        if site.paths[first][index] and all(numbers[at] == numbers[first] for at, _ in way.slots):
            return site.domain_name(DOMAIN_LEVELS[index], first)
    return "the cluster"


def _rejected(search: Search, best: Candidate, others: Sequence[Candidate]) -> tuple[RejectedPlacement, ...]:
    """Return the smaller domains that are too small, and alternatives on other nodes."""
    demand, site = search.demand, search.index
    rejected = list[RejectedPlacement]()
    if len(best.slots) > 1:
        most = max(site.free_ranks(demand))
        rejected.append(RejectedPlacement("one node", f"the largest has capacity for {most} of {demand.ranks} ranks"))
        for index in range(len(DOMAIN_LEVELS) - 1, -1, -1):
            if (
                any(path[index] for path in site.paths)
                and (most := max(site.domain_sums(demand, index))) < demand.ranks
            ):
                level = DOMAIN_LEVELS[index]
                rejected.append(
                    RejectedPlacement(f"one {level}", f"the largest has capacity for {most} of {demand.ranks} ranks")
                )
    seen = {_inside(site, best)}
    for way in others:
        if (where := f"{len(way.slots)} nodes in {_inside(site, way)}") not in seen and len(
            rejected
        ) < _MAX_REJECTED + 2:
            seen.add(where)
            rejected.append(RejectedPlacement(where, _against(best, way)))
    return tuple(rejected)


def _against(best: Candidate, way: Candidate) -> str:
    more = way.communication_s / best.communication_s - 1 if best.communication_s else 0.0
    reasons = [f"{more:.0%} more communication"] if more >= 0.005 else []
    if way.fragmented_devices > best.fragmented_devices:
        reasons.append(f"{way.fragmented_devices - best.fragmented_devices} more free devices on fragmented nodes")
    if not reasons and way.cost[0] > best.cost[0]:
        reasons.append("more domains of the preferred level")
    return ", ".join(reasons) or "not better"


def _may_be_at(demand: Demand, site: NodeIndex, at: int, neighbours: Sequence[Sequence[str]]) -> bool:
    """Return True if the job's required domain also contains this node. Unlabelled nodes are separate domains."""
    if demand.required not in DOMAIN_LEVELS:
        return True
    depth = DOMAIN_LEVELS.index(demand.required) + 1
    mine, theirs = site.paths[at][:depth], [tuple(domains[:depth]) for domains in neighbours if len(domains) >= depth]
    return not theirs or (mine[-1] != "" and all(each == mine for each in theirs))


def _distance(site: NodeIndex, at: int, neighbours: Sequence[Sequence[str]]) -> float:
    """Return the average number of levels that a path to the other nodes leaves."""
    if not neighbours:
        return 0.0
    path = site.paths[at]
    return sum(len(path) - _shared(path, domains) for domains in neighbours) / len(neighbours)


def _shared(path: Sequence[str], other: Sequence[str]) -> int:
    depth = 0
    for mine, theirs in zip(path, other, strict=False):
        if mine != theirs:
            break
        depth += 1
    return depth
