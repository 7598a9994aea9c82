"""What the policies know of a node: its name, labels, and what it has in all and free."""

from collections.abc import Mapping
from dataclasses import dataclass, field

LEVEL_LABELS = ("ray.io/availability-zone", "ray.io/gpu-domain")
"""Labels of Ray's that name failure domains above a node, the largest first."""
MACHINE_LABEL = "regroup.io/machine"
"""Label that names the machine a node runs on, for nodes whose own names change when they come back."""


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
    drain_deadline_s: float | None = None
    """Unix seconds until which Ray expects it to be there, where it said so."""
    closed: str = ""
    """Why nothing new goes there although it has room: it is cordoned or quarantined; empty if it may."""

    @property
    def machine(self) -> str:
        """What it is called for good: Ray gives it another id each time it comes back."""
        return self.labels.get(MACHINE_LABEL) or self.name


def domain_of(node: Node) -> tuple[str, ...]:
    """The failure domains above a node, the largest first; a level that it is not labelled with is empty."""
    return tuple(node.labels.get(label, "") for label in LEVEL_LABELS)
