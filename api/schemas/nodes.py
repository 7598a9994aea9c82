"""Wire models of `/v1/nodes`. Times: Unix seconds."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from regroup.service.spec.types import Line


class _Wire(BaseModel):
    model_config = ConfigDict(from_attributes=True, frozen=True)


class NodeFault(_Wire):
    """A fault of a node."""

    kind: str
    time_s: float
    job_id: str
    """Id of the affected job; empty if there was none."""
    message: str


class NodeHealth(_Wire):
    """Health of a node, which decides if it accepts ranks."""

    status: Literal["open", "cordoned", "quarantined", "fenced"]
    score: float
    """Sum of the node's faults. The weight of a fault halves with each half-life of use."""
    why: str
    """Reason why the node accepts no new ranks, for people; empty if it is open."""
    until_s: float | None
    """Time at which the quarantine or the fence expires; null if the node is open or cordoned."""
    cordoned_by: str | None
    """Actor that cordoned the node."""
    cordoned_at_s: float | None
    quarantines: int
    """Number of recent quarantines, including the current one. Each is twice as long as the one before."""
    faults: list[NodeFault]
    """Faults, oldest first."""


class NodeJob(_Wire):
    """A job that uses devices of a node."""

    id: str
    name: str
    ranks: int


class Node(_Wire):
    """A node of the cluster, or a recorded node that has left it."""

    name: str
    """Permanent name of the node; the health belongs to this name."""
    node_id: str | None
    """Current id in Ray; null if the node is not in the cluster."""
    node_name: str | None
    """Current name in Ray."""
    address: str | None
    cpus: float
    free_cpus: float
    gpus: float
    free_gpus: float
    memory_bytes: int
    free_memory_bytes: int
    is_draining: bool
    """True if the node is being drained."""
    jobs: list[NodeJob]
    spare_for: str
    """Project that reserves the node as a spare for its running jobs; empty if there is none."""
    health: NodeHealth


class NodeList(_Wire):
    """Nodes, ordered by name."""

    nodes: list[Node]


class NodeOrder(BaseModel):
    """The reason for a cordon or uncordon of a node."""

    model_config = ConfigDict(extra="forbid")

    reason: Line = ""
    """Text for people, shown with the node and with jobs that wait for it."""
