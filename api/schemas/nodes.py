"""Wire models of `/v1/nodes`. Times: Unix seconds."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Wire(BaseModel):
    model_config = ConfigDict(from_attributes=True, frozen=True)


class NodeFault(_Wire):
    """One thing that speaks against a node."""

    kind: str
    time_s: float
    job_id: str
    """Empty if no job saw it."""
    message: str


class NodeHealth(_Wire):
    """Whether a node is trusted with ranks."""

    status: Literal["open", "cordoned", "quarantined", "fenced"]
    score: float
    """What its faults come to now; each counts half as much after a half-life of use."""
    why: str
    """Why nothing new is placed there, for people; empty if it is open."""
    until_s: float | None
    """The quarantine, or the fence, ends by itself then; null if it is open, or cordoned."""
    cordoned_by: str | None
    """Who cordoned it."""
    cordoned_at_s: float | None
    quarantines: int
    """How many there were of late, a present one included: the next is twice as long."""
    faults: list[NodeFault]
    """Oldest first."""


class NodeJob(_Wire):
    """A job that holds devices of a node."""

    id: str
    name: str
    ranks: int


class Node(_Wire):
    """A node of the cluster, or one that has left it and is remembered."""

    name: str
    """What it is called for good; its health belongs to that."""
    node_id: str | None
    """Ray's, of now; null while the cluster has no such node."""
    node_name: str | None
    """Ray's, of now."""
    address: str | None
    cpus: float
    free_cpus: float
    gpus: float
    free_gpus: float
    memory_bytes: int
    free_memory_bytes: int
    is_draining: bool
    """It is about to leave."""
    jobs: list[NodeJob]
    spare_for: str
    """Project that has it kept ready for jobs of its own that lose a node; empty if none has."""
    health: NodeHealth


class NodeList(_Wire):
    """Nodes by name."""

    nodes: list[Node]


class NodeOrder(BaseModel):
    """Why a node is closed or opened."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="", max_length=500)
    """Text for people, shown with the node and with jobs that wait for it."""
