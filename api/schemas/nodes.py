"""Wire models of `/v1/nodes` and `/v1/clusters`. Times: Unix seconds."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from regroup.api.schemas.wire import Wire
from regroup.service.spec.types import Line


class NodeFault(Wire):
    """A fault of a node."""

    kind: str
    """Kind of fault, for example `agent_lost`."""
    time_s: float
    """Time of the fault."""
    job_id: str
    """Id of the affected job; empty if there was none."""
    message: str
    """Description for people."""


class NodeHealth(Wire):
    """Health of a node, which decides if it accepts ranks."""

    status: Literal["open", "cordoned", "quarantined", "fenced", "unreachable"]
    """Only an open node accepts ranks. `unreachable`: its cluster does not answer."""
    score: float
    """Sum of the node's faults. The weight of a fault halves with each half-life of use."""
    why: str
    """Reason why the node accepts no new ranks, for people; empty if it is open."""
    until_s: float | None
    """Time at which the quarantine or the fence expires; null if the node is open or cordoned."""
    cordoned_by: str | None
    """Actor that cordoned the node."""
    cordoned_at_s: float | None
    """Time of the cordon; null if the node is not cordoned."""
    quarantines: int
    """Number of recent quarantines, including the current one. Each is twice as long as the one before."""
    faults: list[NodeFault]
    """Faults, oldest first."""


class NodeJob(Wire):
    """A job that uses devices of a node."""

    id: str
    """Id of the job."""
    name: str
    """Name of the job."""
    ranks: int
    """Number of its ranks on this node."""


class Node(Wire):
    """A node of the cluster, or a recorded node that has left it."""

    name: str
    """Permanent name of the node; the health belongs to this name."""
    cluster: str | None
    """Name of its cluster; null if it is not in a cluster now."""
    node_id: str | None
    """Current id in Ray; null if the node is not in the cluster."""
    node_name: str | None
    """Current name in Ray."""
    address: str | None
    """Address of the node; null if it is not in the cluster."""
    cpus: float
    """Number of CPU cores, as Ray counts them."""
    free_cpus: float
    """Number of cores that no job has."""
    gpus: float
    """Number of GPUs."""
    free_gpus: float
    """Number of GPUs that no job has."""
    memory_bytes: int
    """Memory, as Ray counts it."""
    free_memory_bytes: int
    """Memory that no job has reserved."""
    is_draining: bool
    """True if the node is being drained."""
    jobs: list[NodeJob]
    """Jobs that use devices of the node."""
    spare_for: str
    """Project that reserves the node as a spare for its running jobs; empty if there is none."""
    health: NodeHealth
    """Health of the node."""
    etag: str
    """Entity tag of this state: `If-Match` compares it before a change."""


class NodeList(Wire):
    """Nodes, ordered by name."""

    nodes: list[Node]
    """The nodes."""


class ClusterState(Wire):
    """A cluster of the server."""

    name: str
    """Name of the cluster, for `resources.cluster`."""
    is_default: bool
    """True for the cluster of jobs that name none."""
    answers: bool
    """True if the cluster answers. Jobs of a cluster that does not answer continue to run, and new ones wait."""
    problem: str
    """Reason why the cluster does not answer; empty if it does."""
    nodes: int
    """Number of nodes for ranks; of a cluster that does not answer, those that are known."""
    cpus: float
    """Number of CPU cores, as Ray counts them."""
    free_cpus: float
    """Number of cores that are free."""
    gpus: float
    """Number of GPUs."""
    free_gpus: float
    """Number of GPUs that are free."""


class ClusterList(Wire):
    """Clusters, the default one first."""

    clusters: list[ClusterState]
    """The clusters."""


class NodeOrder(BaseModel):
    """The reason for a cordon or uncordon of a node."""

    model_config = ConfigDict(extra="forbid")

    reason: Line = ""
    """Text for people, shown with the node and with jobs that wait for it."""
