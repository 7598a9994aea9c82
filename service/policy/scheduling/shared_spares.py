"""Which idle nodes are kept ready for the jobs of a project that lose one: spares that its jobs share. Pure.

Nothing is remembered: an idle node has nothing on it, so one is as good as another, and the same cluster always gives
the same answer, whoever asks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from regroup.service.domain.topology import Node, NodeKind
from regroup.service.policy.scheduling.capacity import ResourceAmounts, free_of, total_of


@dataclass(frozen=True)
class NodeShare:
    """What a running job has on one node."""

    ranks: int
    resources: ResourceAmounts
    kind: NodeKind
    """What the node has to be."""


@dataclass(frozen=True)
class SparePool:
    """A project that has nodes kept, and the parts of its jobs that could be lost."""

    project: str
    requested_nodes: int
    """How many it would have."""
    shares: Sequence[NodeShare]
    max_ranks: int | None = None
    """So many devices it may hold beyond those of its jobs; None: no limit."""


def assign_shared_spares(keepers: Sequence[SparePool], nodes: Sequence[Node]) -> dict[str, str]:
    """Node id → project that it is kept for.

    A node is kept if it is idle and could take the place of a part of a running job; first those that could of most.
    As many devices count against the project's limit as its largest part has ranks.

    Args:
        nodes: with what is free on them beside all jobs.
    """
    idle = sorted((node for node in nodes if _is_idle(node)), key=lambda node: (node.name, node.id))
    found: dict[str, str] = {}
    for keeper in sorted(keepers, key=lambda each: each.project):
        each = max((part.ranks for part in keeper.shares), default=0)
        count = (
            keeper.requested_nodes
            if keeper.max_ranks is None or not each
            else min(keeper.requested_nodes, keeper.max_ranks // each)
        )
        able = {
            node.id: sum(_could_take(node, part) for part in keeper.shares) for node in idle if node.id not in found
        }
        useful = [node for node in idle if able.get(node.id)]
        for node in sorted(useful, key=lambda node: -able[node.id])[:count]:
            found[node.id] = keeper.project
    return found


def describe_shared_spare(project: str) -> str:
    """Of a node, for people."""
    return f"kept ready for jobs of project {project!r} that lose a node"


def _is_idle(node: Node) -> bool:
    is_open = node.alive and not node.is_control and not node.is_draining and not node.closed_reason
    return is_open and free_of(node) == total_of(node)


def _could_take(node: Node, part: NodeShare) -> bool:
    return node.kind.satisfies(part.kind) and all(
        has >= asks for has, asks in zip(total_of(node), part.resources, strict=True)
    )
