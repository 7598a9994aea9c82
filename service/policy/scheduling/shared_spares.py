"""Which idle nodes are kept ready for the jobs of a project that lose one: spares that its jobs share. Pure.

Nothing is remembered: an idle node has nothing on it, so one is as good as another, and the same cluster always gives
the same answer, whoever asks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from regroup.service.domain.topology import Kind, Node
from regroup.service.policy.scheduling.capacity import Free, free_of, whole_of


@dataclass(frozen=True)
class Part:
    """What a running job has on one node."""

    ranks: int
    holds: Free
    kind: Kind
    """What the node has to be."""


@dataclass(frozen=True)
class Keeper:
    """A project that has nodes kept, and the parts of its jobs that could be lost."""

    project: str
    nodes: int
    """How many it would have."""
    parts: Sequence[Part]
    most_ranks: int | None = None
    """So many devices it may hold beyond those of its jobs; None: no limit."""


def kept(keepers: Sequence[Keeper], nodes: Sequence[Node]) -> dict[str, str]:
    """Node id → project that it is kept for.

    A node is kept if it is idle and could take the place of a part of a running job; first those that could of most.
    As many devices count against the project's limit as its largest part has ranks.

    Args:
        nodes: with what is free on them beside all jobs.
    """
    idle = sorted((node for node in nodes if _is_idle(node)), key=lambda node: (node.name, node.id))
    found: dict[str, str] = {}
    for keeper in sorted(keepers, key=lambda each: each.project):
        each = max((part.ranks for part in keeper.parts), default=0)
        count = keeper.nodes if keeper.most_ranks is None or not each else min(keeper.nodes, keeper.most_ranks // each)
        able = {node.id: sum(_could_take(node, part) for part in keeper.parts) for node in idle if node.id not in found}
        useful = [node for node in idle if able.get(node.id)]
        for node in sorted(useful, key=lambda node: -able[node.id])[:count]:
            found[node.id] = keeper.project
    return found


def why_kept(project: str) -> str:
    """Of a node, for people."""
    return f"kept ready for jobs of project {project!r} that lose a node"


def _is_idle(node: Node) -> bool:
    is_open = node.alive and not node.is_control and not node.is_draining and not node.closed
    return is_open and free_of(node) == whole_of(node)


def _could_take(node: Node, part: Part) -> bool:
    return node.kind.has(part.kind) and all(has >= asks for has, asks in zip(whole_of(node), part.holds, strict=True))
