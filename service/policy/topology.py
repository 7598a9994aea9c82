"""Levels of a cluster, the largest first, and what the policies know of a node: where it is, what it has free."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Level(StrEnum):
    """Kinds of domains, each inside of one of the kind before it; also what fails together."""

    ZONE = "zone"
    BLOCK = "block"
    """Racks behind one spine."""
    RACK = "rack"
    """Nodes behind one leaf switch."""
    GPU_DOMAIN = "gpu_domain"
    """Nodes whose devices reach each other as those of one node do, e.g. NVL72. A node not said to be in any is one."""
    NODE = "node"
    DEVICE = "device"


DOMAIN_LEVELS = (Level.ZONE, Level.BLOCK, Level.RACK, Level.GPU_DOMAIN)
"""Levels above a node."""
DEFAULT_LABELS: Mapping[Level, str] = {
    Level.ZONE: "ray.io/availability-zone",
    Level.BLOCK: "regroup.io/block",
    Level.RACK: "regroup.io/rack",
    Level.GPU_DOMAIN: "ray.io/gpu-domain",
}
"""Label of a Ray node that names its domain of a level."""
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
    domains: tuple[str, ...] = ()
    """Its domain of each of `DOMAIN_LEVELS`, empty where not known; none at all: as `DEFAULT_LABELS` have it."""

    @property
    def machine(self) -> str:
        """What it is called for good: Ray gives it another id each time it comes back."""
        return self.labels.get(MACHINE_LABEL) or self.name


def domain_of(node: Node) -> tuple[str, ...]:
    """The domains above a node, the largest first; empty for a level that nothing is known of."""
    if node.domains:
        return node.domains
    labels = node.labels
    return tuple([labels.get(label, "") for label in DEFAULT_LABELS.values()]) if labels else _NOWHERE


_NOWHERE = ("",) * len(DOMAIN_LEVELS)
