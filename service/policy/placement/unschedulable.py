"""Explain why a job has no nodes."""

from collections.abc import Sequence
from dataclasses import dataclass

from regroup.service.domain.topology import ANY_KIND, DOMAIN_LEVELS, Level, Node
from regroup.service.policy.placement.demand import Demand, NodeCapacity, Shortage, Unplaceable
from regroup.service.policy.placement.node_index import NodeIndex, totals

_ROWS = 8
_CLOSED = 4


def unplaceable(demand: Demand, site: NodeIndex) -> Unplaceable:
    """Return the missing resources of a demand that does not fit now."""
    count = len(site.nodes)
    if not count and not site.closed:
        return Unplaceable(Shortage.NO_NODES, f"needs {demand}; the cluster has no node that takes ranks")
    nodes = tuple(node_capacity(demand, site, at) for at in site.first_by_name(_ROWS))
    details = f"{table(nodes, count)}{describe_closed_nodes(site.closed)}"
    free, everything = (
        sum(site.domain_sums(demand, -1)),
        sum(totals(demand, site.total_ranks(demand), site.domain_starts, -1)),
    )
    if everything < demand.ranks:
        opened = sum(_whole(demand, node) for node in site.closed)
        which = f"the {count} that are open" if site.closed else f"all {count} nodes together"
        why = Shortage.NODES_CLOSED if everything + opened >= demand.ranks else Shortage.TOO_LARGE
        return Unplaceable(why, f"needs {demand}; {which} hold {everything} when nothing else runs{details}", nodes)
    if free < demand.ranks:
        return Unplaceable(Shortage.RESOURCES, f"needs {demand}; {free} of {everything} are free now{details}", nodes)
    return _not_together(demand, site, free, nodes, details)


def _not_together(
    demand: Demand, site: NodeIndex, free: int, nodes: tuple[NodeCapacity, ...], details: str
) -> Unplaceable:
    """Explain a demand for which enough devices are free, but not inside one allowed domain."""
    level = demand.required
    if level is None:
        message = f"needs {demand}; {free} are free, in too few domains of the level {demand.spread}"
        return Unplaceable(Shortage.RESOURCES, f"{message}{details}", nodes)
    if level is Level.NODE:
        now, whole = max(site.free_ranks(demand), default=0), max(site.total_ranks(demand), default=0)
    else:
        index = DOMAIN_LEVELS.index(level)
        if not site.has_level(level):
            message = f"needs {demand}; the nodes have no {level} label: see `regroup topology`"
            return Unplaceable(Shortage.TOO_LARGE, message, nodes)
        now = max(site.domain_sums(demand, index), default=0)
        whole = max(totals(demand, site.total_ranks(demand), site.domain_starts, index), default=0)
    message = f"needs {demand}; {free} are free, but the {level} with most of them has {now}"
    if whole < demand.ranks:
        message = f"needs {demand}; the largest {level} holds {whole} when nothing else runs"
        return Unplaceable(Shortage.TOO_LARGE, f"{message}{details}", nodes)
    return Unplaceable(Shortage.RESOURCES, f"{message}{details}", nodes)


def node_capacity(demand: Demand, site: NodeIndex, at: int) -> NodeCapacity:
    """Return the capacity of one node, in whole segments if these stay on nodes."""
    node, (cpus, gpus, memory) = site.nodes[at], site.free_resources(at)
    if not node.kind.satisfies(demand.kind):
        return NodeCapacity(
            node.name, 0, 0, f"has {node.kind}" if node.kind != ANY_KIND else "its labels do not name its kind"
        )
    needs = [_Need("CPU", demand.cpus, cpus, node.cpus)]
    if demand.device == "cuda":
        needs.append(_Need("CUDA devices", 1, gpus, node.gpus))
    if demand.memory_bytes:
        gib = 2**30
        needs.append(_Need("GiB", demand.memory_bytes / gib, memory / gib, node.memory_bytes / gib))
    scarce = min(needs, key=lambda need: need.free / need.each)
    grain = demand.segment if demand.segment_within is Level.NODE else 1
    limit = f"{scarce.what}: {scarce.free:g} of {scarce.all:g} free"
    free, everything = site.free_ranks(demand)[at], site.total_ranks(demand)[at]
    return NodeCapacity(node.name, free // grain * grain, everything // grain * grain, limit)


def table(nodes: Sequence[NodeCapacity], count: int) -> str:
    """Describe the first of `count` nodes, one by one."""
    lines = [f"{capacity.name} holds {capacity.free_ranks} ({capacity.limit})" for capacity in nodes[:_ROWS]]
    return (": " if lines else "") + _listed(lines, count - _ROWS)


def describe_closed_nodes(nodes: Sequence[Node]) -> str:
    """Describe the closed nodes and the reasons."""
    reasons = [f"{node.name} is {node.closed_reason}" for node in nodes]
    return ("; " if reasons else "") + _listed(reasons[:_CLOSED], len(reasons) - _CLOSED)


def describe_lost_nodes(lost: Sequence[str], *, is_local: bool, restarts: bool) -> str:
    """Describe the nodes that the cluster has lost, and what brings them back; empty if there are none.

    Args:
        is_local: the cluster runs on this machine.
        restarts: the server starts lost local nodes again.
    """
    if not lost:
        return ""
    one = len(lost) == 1
    names = ", ".join(lost[:_CLOSED]) + (f" and {len(lost) - _CLOSED} more" if len(lost) > _CLOSED else "")
    if is_local and restarts:
        remedy = "the server starts it again" if one else "the server starts them again"
    elif is_local:
        remedy = "`regroup down` and then `regroup serve` start all nodes again"
    else:
        remedy = f"start Ray there again (`ray start`), or replace {'it' if one else 'them'}"
    return f"; {names} {'is' if one else 'are'} lost: {remedy}"


@dataclass(frozen=True)
class _Need:
    what: str
    each: float
    free: float
    all: float


def _whole(demand: Demand, node: Node) -> int:
    if not node.kind.satisfies(demand.kind):
        return 0
    fits = [node.cpus // demand.cpus]
    fits += [node.gpus] if demand.device == "cuda" else []
    fits += [node.memory_bytes // demand.memory_bytes] if demand.memory_bytes else []
    return int(min(fits)) // demand.segment * demand.segment


def _listed(lines: Sequence[str], more: int) -> str:
    return "; ".join(lines) + (f"; and {more} more" if more > 0 else "")
