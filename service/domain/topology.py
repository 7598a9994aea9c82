"""Topology levels, and a node as the policies see it: its place and its free resources."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    """Topology levels, the largest first. Each domain is inside one domain of the level before. Domains are also
    failure domains."""

    ZONE = "zone"
    BLOCK = "block"
    """Racks behind one spine switch."""
    RACK = "rack"
    """Nodes behind one leaf switch."""
    GPU_DOMAIN = "gpu_domain"
    """Nodes whose devices are connected as those of one node are, for example NVL72. A node without this label is its
    own domain."""
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
"""Level → label of a Ray node that names its domain."""
MACHINE_LABEL = "regroup.io/machine"
"""Label that names the machine of a node, for nodes whose own names change when they return."""


ACCELERATOR_LABEL = "ray.io/accelerator-type"
"""Label of a Ray node with its GPU type; set by Ray."""
IMAGE_LABEL = "regroup.io/image"
"""Label of a Ray node with its container image, for jobs that request one."""


CLUSTER_MARK = ":"
"""Between the name of a cluster and the names of its nodes and domains, outside the default cluster."""


class NodeKind(NamedTuple):
    """Type of a node, apart from its amount of resources. Nodes of one kind are interchangeable."""

    accelerator: str = ""
    """GPU type, for example `H100`; empty if the node has none or the type is unknown."""
    image: str = ""
    """Name of the container image; empty if unknown."""
    cluster: str = ""
    """Name of the cluster; empty for the default cluster."""

    def satisfies(self, required: "NodeKind") -> bool:
        """Return True if a node of this kind satisfies the required kind.

        An empty accelerator or image requires nothing. The cluster must be the same: ranks never span clusters.
        """
        return (
            required.cluster == self.cluster
            and required.accelerator in ("", self.accelerator)
            and required.image in ("", self.image)
        )

    def __str__(self) -> str:
        named = {"accelerator": self.accelerator, "image": self.image, "cluster": self.cluster}
        return " and ".join(f"{name} {value}" for name, value in named.items() if value)


ANY_KIND = NodeKind()
"""Any kind of node of the default cluster."""


@dataclass(frozen=True)
class Node:
    """One Ray node at one moment."""

    id: str
    name: str
    """Display name, for example `local-1` or a Kubernetes pod. Not necessarily unique."""
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
    """True if the node runs supervisors and the control plane, and never ranks."""
    is_draining: bool = False
    """True if the node is going away and takes no new ranks."""
    drain_deadline_s: float | None = None
    """Time in Unix seconds until which Ray expects the node to exist, if Ray reports one."""
    closed_reason: str = ""
    """Reason why the node takes no new ranks (cordoned or quarantined); empty if it takes them."""
    cluster: str = ""
    """Name of the cluster; empty for the default cluster."""
    domains: tuple[str, ...] = ()
    """Name of the node's domain at each of `DOMAIN_LEVELS`, empty if unknown. An empty tuple means: as named by
    `DEFAULT_LABELS`."""

    @property
    def machine(self) -> str:
        """Permanent name of the node. Ray assigns a new id each time it returns."""
        return self.labels.get(MACHINE_LABEL) or self.name

    @property
    def kind(self) -> NodeKind:
        """Kind of the node, from its labels."""
        if not self.labels and not self.cluster:
            return ANY_KIND
        return NodeKind(self.labels.get(ACCELERATOR_LABEL, ""), self.labels.get(IMAGE_LABEL, ""), self.cluster)


def domains_of(node: Node) -> tuple[str, ...]:
    """Return the domains above a node, the largest first; an empty name means unknown."""
    if node.domains:
        return node.domains
    labels = node.labels
    return tuple([labels.get(label, "") for label in DEFAULT_LABELS.values()]) if labels else _NOWHERE


_NOWHERE = ("",) * len(DOMAIN_LEVELS)
