"""Choose the idle nodes that are spares for all jobs of a project. Pure.

The choice has no state: idle nodes are interchangeable, so the same cluster always gives the same answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from regroup.service.domain.topology import Node, NodeKind
from regroup.service.policy.scheduling.capacity import ResourceAmounts, free_of, total_of


@dataclass(frozen=True)
class NodeShare:
    """The part of a running job on one node."""

    ranks: int
    resources: ResourceAmounts
    kind: NodeKind
    """Kind that the node must have."""


@dataclass(frozen=True)
class SparePool:
    """A project with shared spares, and the parts of its jobs that they can replace."""

    project: str
    requested_nodes: int
    """Number of spare nodes that the project requests."""
    shares: Sequence[NodeShare]
    max_ranks: int | None = None
    """Devices that the project may use beyond those of its jobs; None for no limit."""


def assign_shared_spares(pools: Sequence[SparePool], nodes: Sequence[Node]) -> dict[str, str]:
    """Return node id → project whose jobs may use the node as a spare.

    A node is chosen if it is idle and could replace a part of a running job, the nodes that could replace most parts
    first. Each node counts against the project's limit by the ranks of its largest part.

    Args:
        nodes: with the resources that all jobs leave free.
    """
    idle = sorted((node for node in nodes if _is_idle(node)), key=lambda node: (node.name, node.id))
    found: dict[str, str] = {}
    for pool in sorted(pools, key=lambda each: each.project):
        each = max((part.ranks for part in pool.shares), default=0)
        count = (
            pool.requested_nodes
            if pool.max_ranks is None or not each
            else min(pool.requested_nodes, pool.max_ranks // each)
        )
        able = {node.id: sum(_can_replace(node, part) for part in pool.shares) for node in idle if node.id not in found}
        useful = [node for node in idle if able.get(node.id)]
        for node in sorted(useful, key=lambda node: -able[node.id])[:count]:
            found[node.id] = pool.project
    return found


SHARED_SPARE = "reserved as a spare for jobs of another project"
"""Reason why a node is closed for jobs of other projects, for people. They may not see the project."""


def _is_idle(node: Node) -> bool:
    is_open = node.alive and not node.is_control and not node.is_draining and not node.closed_reason
    return is_open and free_of(node) == total_of(node)


def _can_replace(node: Node, part: NodeShare) -> bool:
    return node.kind.satisfies(part.kind) and all(
        has >= required for has, required in zip(total_of(node), part.resources, strict=True)
    )
