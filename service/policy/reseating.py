"""Seats for a job that runs and is to have another number of ranks: as many as can be stay where they are. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from regroup.service.policy.placement import Demand, Seat, Unplaceable, place
from regroup.service.policy.topology import DOMAIN_LEVELS, Level, Node, domain_of


def reseat(demand: Demand, seats: Sequence[tuple[str, int]], nodes: Sequence[Node]) -> tuple[Seat, ...] | Unplaceable:
    """Seats for `demand.ranks`, in the order of the ranks.

    Ranks are given up where a node has fewest, so that nodes become whole again for others. More are taken first on
    nodes that the job has, where its state is, then on as few others as `place` finds, in the domain that all of them
    are required to be in.

    Args:
        seats: node id and ranks of each seat that the job has and may keep, in their order.
        nodes: with what is free on them beside what the job has.
    """
    by_id = {node.id: node for node in nodes}
    whole = {node_id: ranks // demand.segment * demand.segment for node_id, ranks in seats if node_id in by_id}
    while (surplus := sum(whole.values()) - demand.ranks) > 0:
        last = min((node_id for node_id in reversed(whole) if whole[node_id]), key=whole.__getitem__)
        whole[last] -= min(surplus, whole[last])
    for node_id in whole:
        missing = demand.ranks - sum(whole.values())
        whole[node_id] += min(missing, _room(demand, by_id[node_id]))
    kept = [Seat(by_id[node_id], ranks) for node_id, ranks in whole.items() if ranks]
    if not (missing := demand.ranks - sum(whole.values())):
        return tuple(kept)
    # Who talks to whom is known of all ranks, and not of those that are missing.
    inside = {_domain(seat.node, demand.required) for seat in kept if demand.required}
    others = [node for node in nodes if not whole.get(node.id)]
    others = [node for node in others if not inside or inside == {_domain(node, demand.required)}]
    found = place(replace(demand, ranks=missing, axes=()), others)
    if isinstance(found, Unplaceable):
        have = sum(ranks for _, ranks in seats)
        why = _elsewhere(demand, missing, len(inside)) if inside and not others else f"it {found.message}"
        return replace(found, message=f"to go from {have} to {demand.ranks} ranks {why}")
    return (*kept, *(replace(seat, numbers=()) for seat in found.seats))


def _domain(node: Node, level: Level | None) -> tuple[str, ...]:
    """Of this level; a node's own where nothing says which it is in."""
    path = domain_of(node)[: DOMAIN_LEVELS.index(level) + 1] if level in DOMAIN_LEVELS else ("",)
    return path if path[-1] else (*path, node.id)


def _elsewhere(demand: Demand, missing: int, domains: int) -> str:
    level = demand.required
    if domains > 1:
        return f"it needs {missing} more in one {level} with its others, and those are in {domains} by now"
    return f"it needs {missing} more in the {level} of its others, which has no other node"


def _room(demand: Demand, node: Node) -> int:
    """Ranks that a node could take, in whole groups."""
    if not node.alive or node.is_draining or node.closed or not node.kind.has(demand.kind):
        return 0
    free = node.free_cpus / demand.cpus
    if demand.device == "cuda":
        free = min(free, node.free_gpus)
    if demand.memory_bytes:
        free = min(free, node.free_memory_bytes / demand.memory_bytes)
    return max(0, int(free) // demand.segment * demand.segment)
