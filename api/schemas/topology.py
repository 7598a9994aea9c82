"""Wire models of `/v1/topology`, and of the reasons for a job's placement."""

from pydantic import BaseModel, ConfigDict

from regroup.service.domain.topology import Level


class _Wire(BaseModel):
    model_config = ConfigDict(from_attributes=True, frozen=True)


class Link(_Wire):
    """The link out of a domain."""

    bytes_per_s: float
    """Bandwidth per device, in one direction, when all devices of the domain send."""
    latency_s: float


class LevelInfo(_Wire):
    """A level of domains."""

    level: Level
    label: str
    """Label of Ray nodes that names their domain of this level; empty for nodes and devices."""
    link: Link
    measured_s: float | None
    """Time at which a probe measured the link, in Unix seconds; null if the value is from the hardware table."""


class Island(_Wire):
    """Devices of a node with the fastest links to each other; cores if the node has no GPUs."""

    link: str
    """Link between the devices: `nvswitch`, `nvlink`, or `numa` without NVLink."""
    gpus: list[int]
    """Indices of the GPUs as numbered by the driver."""
    numa: list[int]
    """NUMA nodes of the devices, if known."""
    cores: str
    """Cores of these NUMA nodes, in the kernel's list format."""


class Domain(_Wire):
    """A domain of the cluster, or a node."""

    level: Level
    name: str
    """Name of the domain; empty for nodes whose domain is unknown."""
    nodes: int
    cpus: float
    free_cpus: float
    gpus: float
    free_gpus: float
    children: list["Domain"]
    islands: list[Island]
    """Islands inside a node that a probe inspected."""


class Topology(_Wire):
    """Topology of the nodes for ranks, as placement uses it."""

    levels: list[LevelInfo]
    """Levels, largest first."""
    domains: list[Domain]
    """Largest domains. Levels that no node names are omitted."""
    problems: list[str]
    """Inconsistencies, and the way they are resolved."""


class AxisCost(_Wire):
    """Cost of one axis of the layout at a placement."""

    name: str
    degree: int
    wire_bytes: float
    """Bytes that a rank sends to the next rank of its group per step."""
    leaves: Level
    """Largest level whose domains the axis's groups cross; `device` if the groups stay on their nodes."""
    seconds: float


class Rejected(_Wire):
    """An alternative placement of the job."""

    what: str
    why: str


class Choice(_Wire):
    """Reasons for a job's placement. The predictions compare placements; they do not forecast the step time."""

    inside: str
    """Smallest domain that contains all ranks."""
    communication_s: float | None
    """Predicted communication time per step; null for scripts and functions, whose communication is unknown."""
    axes: list[AxisCost]
    """Axes in the order of the ranks' physical distance, nearest first; empty if the communication is unknown."""
    probe_job_id: str | None = None
    """Probe that measured the links; null if the times are rough estimates from a table."""
    broken: int
    """Change in the number of free devices on partly used nodes; negative if there are fewer."""
    rejected: list[Rejected]
