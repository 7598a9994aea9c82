"""Levels of a cluster, the largest first, and what the policies know of a node: where it is, what it has free."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


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


ACCELERATOR_LABEL = "ray.io/accelerator-type"
"""Label of a Ray node that says which GPUs it has: Ray sets it by itself."""
IMAGE_LABEL = "regroup.io/image"
"""Label of a Ray node that names the container image it runs, for jobs that ask for one."""


class NodeKind(NamedTuple):
    """What nodes have or are, beside how much of it: those of one kind stand for each other."""

    accelerator: str = ""
    """E.g. `H100`; empty if it has none, or nobody knows."""
    image: str = ""
    """Name of its container image; empty if nobody said."""

    def satisfies(self, wanted: "NodeKind") -> bool:
        """Whether a node of this kind is what `wanted` asks for; an empty field asks for nothing."""
        return wanted.accelerator in ("", self.accelerator) and wanted.image in ("", self.image)

    def __str__(self) -> str:
        parts = [f"accelerator {self.accelerator}"] if self.accelerator else []
        return " and ".join([*parts, *([f"image {self.image}"] if self.image else [])])


ANY_KIND = NodeKind()


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
    closed_reason: str = ""
    """Why nothing new goes there although it has room: it is cordoned or quarantined; empty if it may."""
    domains: tuple[str, ...] = ()
    """Its domain of each of `DOMAIN_LEVELS`, empty where not known; none at all: as `DEFAULT_LABELS` have it."""

    @property
    def machine(self) -> str:
        """What it is called for good: Ray gives it another id each time it comes back."""
        return self.labels.get(MACHINE_LABEL) or self.name

    @property
    def kind(self) -> NodeKind:
        """What it is, as its labels have it."""
        if not self.labels:
            return ANY_KIND
        return NodeKind(self.labels.get(ACCELERATOR_LABEL, ""), self.labels.get(IMAGE_LABEL, ""))


def domains_of(node: Node) -> tuple[str, ...]:
    """The domains above a node, the largest first; empty for a level that nothing is known of."""
    if node.domains:
        return node.domains
    labels = node.labels
    return tuple([labels.get(label, "") for label in DEFAULT_LABELS.values()]) if labels else _NOWHERE


_NOWHERE = ("",) * len(DOMAIN_LEVELS)
