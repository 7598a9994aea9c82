"""What the policies know of a node: its name, labels, and what it has in all and free."""

from collections.abc import Mapping
from dataclasses import dataclass, field

LEVEL_LABELS = ("ray.io/availability-zone", "ray.io/gpu-domain")
"""Labels of Ray's that name failure domains above a node, the largest first."""


@dataclass(frozen=True)
class Node:
    """One Ray node at one moment."""

    id: str
    name: str
    """For people: `local-1`, a Kubernetes pod; not unique by force."""
    address: str
    alive: bool = True
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    cpus: float = 0.0
    gpus: float = 0.0
    memory_bytes: int = 0
    free_cpus: float = 0.0
    free_gpus: float = 0.0
    free_memory_bytes: int = 0
    is_control: bool = False
    """Carries supervisors and the control plane, never ranks."""
    is_draining: bool = False
    """Is about to leave; nothing new goes there."""


def domain_of(node: Node) -> tuple[str, ...]:
    """The failure domains above a node, the largest first; a level that it is not labelled with is empty."""
    return tuple(node.labels.get(label, "") for label in LEVEL_LABELS)
