"""Slots for a running job with another number of ranks: as many ranks as possible stay on their nodes. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from regroup.service.domain.topology import DOMAIN_LEVELS, Level, Node, domains_of
from regroup.service.policy.placement.place import Demand, Placement, RankSlot, Shortage, Unplaceable, place


def resize_slots(
    demand: Demand, slots: Sequence[tuple[str, int]], nodes: Sequence[Node]
) -> tuple[RankSlot, ...] | Unplaceable:
    """Return slots for `demand.ranks`, in rank order.

    Ranks are released where a node has the fewest, so that nodes become whole again. Additional ranks go first to the
    job's nodes, which have its state, then to as few others as `place` finds. All of them satisfy the required domain
    and the spread, as far as the current slots do.

    Args:
        slots: node id and ranks of each slot that the job may keep, in order.
        nodes: nodes with the resources that are free apart from those of the job.
    """
    by_id = {node.id: node for node in nodes}
    whole = {node_id: ranks // demand.segment * demand.segment for node_id, ranks in slots if node_id in by_id}
    while (surplus := sum(whole.values()) - demand.ranks) > 0:
        last = min((node_id for node_id in reversed(whole) if whole[node_id]), key=whole.__getitem__)
        whole[last] -= min(surplus, whole[last])
    for node_id in whole:
        missing = demand.ranks - sum(whole.values())
        whole[node_id] += min(missing, _room(demand, by_id[node_id]))
    kept = [RankSlot(by_id[node_id], ranks) for node_id, ranks in whole.items() if ranks]
    if not (missing := demand.ranks - sum(whole.values())):
        return tuple(kept)
    inside = {_domain(slot.node, demand.required) for slot in kept if demand.required}
    others = [node for node in nodes if not whole.get(node.id)]
    others = [node for node in others if not inside or inside == {_domain(node, demand.required)}]
    # The axes describe all ranks, not the missing ones alone.
    found = _beside(kept, replace(demand, ranks=missing, axes=()), others)
    if isinstance(found, Unplaceable):
        have = sum(ranks for _, ranks in slots)
        why = _elsewhere(demand, missing, len(inside)) if inside and not others else found.message
        return replace(found, message=f"cannot resize from {have} to {demand.ranks} ranks: {why}")
    return (*kept, *(replace(slot, rank_numbers=()) for slot in found.slots))


def most_ranks(demand: Demand, slots: Sequence[tuple[str, int]], nodes: Sequence[Node]) -> int:
    """Return an upper bound of the ranks that the nodes can hold, with those of the slots that the job may keep."""
    single, there = replace(demand, segment=1), {node.id for node in nodes}
    return sum(ranks for node_id, ranks in slots if node_id in there) + sum(_room(single, node) for node in nodes)


def _beside(kept: Sequence[RankSlot], demand: Demand, others: Sequence[Node]) -> Placement | Unplaceable:
    """Return nodes for the missing ranks that leave the whole job spread as required.

    Tries any nodes first, then nodes outside the domain with most of the job, then nodes that are spread by themselves.
    """
    level = demand.spread
    if level is None or not kept:
        return place(demand, others)
    there = [slot.node for slot in kept]
    crowd = Counter(_domain(node, level) for node in there).most_common(1)[0][0]
    apart = [node for node in others if _domain(node, level) != crowd]
    whichever = replace(demand, spread=None)
    most = max(0, _excess(level, there))
    found = [place(whichever, others), place(whichever, apart), place(demand, others)]
    for each in found:
        if isinstance(each, Placement) and _excess(level, [*there, *(slot.node for slot in each.slots)]) <= most:
            return each
    if isinstance(found[0], Unplaceable):
        return found[0]
    return Unplaceable(
        Shortage.RESOURCES, f"needs {demand}; with the nodes that have capacity, more than half would be in one {level}"
    )


def _excess(level: Level, nodes: Sequence[Node]) -> int:
    """Return a number above 0 if one domain has more than half of the nodes."""
    return 2 * max(Counter(_domain(node, level) for node in nodes).values()) - len(nodes)


def _domain(node: Node, level: Level | None) -> tuple[str, ...]:
    """Return the node's domain at this level; the node itself if it is unknown."""
    path = domains_of(node)[: DOMAIN_LEVELS.index(level) + 1] if level in DOMAIN_LEVELS else ("",)
    return path if path[-1] else (*path, node.id)


def _elsewhere(demand: Demand, missing: int, domains: int) -> str:
    level = demand.required
    if domains > 1:
        return f"needs {missing} more ranks in one {level}, but its ranks are in {domains}"
    return f"needs {missing} more ranks in its {level}, which has no other node"


def _room(demand: Demand, node: Node) -> int:
    """Return the number of ranks that a node could take, in whole groups."""
    if not node.alive or node.is_draining or node.closed_reason or not node.kind.satisfies(demand.kind):
        return 0
    free = node.free_cpus / demand.cpus
    if demand.device == "cuda":
        free = min(free, node.free_gpus)
    if demand.memory_bytes:
        free = min(free, node.free_memory_bytes / demand.memory_bytes)
    return max(0, int(free) // demand.segment * demand.segment)
