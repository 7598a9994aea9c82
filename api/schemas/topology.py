"""Wire models of `/v1/topology`, and of the reasons for a job's placement."""

from regroup.api.schemas.wire import Wire
from regroup.service.domain.topology import Level


class Link(Wire):
    """The link out of a domain."""

    bytes_per_s: float
    """Bandwidth per device, in one direction, when all devices of the domain send."""
    latency_s: float
    """Latency of a small message."""


class LevelInfo(Wire):
    """A level of domains."""

    level: Level
    """Name of the level."""
    label: str
    """Label of Ray nodes that names their domain of this level; empty for nodes and devices."""
    link: Link
    """Link out of a domain of this level, as placement uses it."""
    nominal: Link
    """The same link in the hardware table, which is used until a probe measures it."""
    measured_s: float | None
    """Time at which a probe measured the link, in Unix seconds; null if the value is from the hardware table."""


class Island(Wire):
    """Devices of a node with the fastest links to each other; cores if the node has no GPUs."""

    link: str
    """Link between the devices: `nvswitch`, `nvlink`, or `numa` without NVLink."""
    gpus: list[int]
    """Indices of the GPUs as numbered by the driver."""
    numa: list[int]
    """NUMA nodes of the devices, if known."""
    cores: str
    """Cores of these NUMA nodes, in the kernel's list format."""


class Domain(Wire):
    """A domain of the cluster, or a node."""

    level: Level
    """Level of the domain."""
    name: str
    """Name of the domain; empty for nodes whose domain is unknown."""
    nodes: int
    """Number of nodes in it."""
    cpus: float
    """Number of CPU cores."""
    free_cpus: float
    """Number of cores that no job has."""
    gpus: float
    """Number of GPUs."""
    free_gpus: float
    """Number of GPUs that no job has."""
    children: list["Domain"]
    """Domains inside it."""
    islands: list[Island]
    """Islands inside a node that a probe inspected."""


class Topology(Wire):
    """Topology of the nodes for ranks, as placement uses it."""

    levels: list[LevelInfo]
    """Levels, largest first."""
    domains: list[Domain]
    """Largest domains. Levels that no node names are omitted."""
    problems: list[str]
    """Inconsistencies, and the way they are resolved."""


class AxisCost(Wire):
    """Cost of one axis of the layout at a placement."""

    name: str
    """Name of the axis, for example `tp`."""
    degree: int
    """Number of ranks in a group."""
    wire_bytes: float
    """Bytes that a rank sends to the next rank of its group per step."""
    leaves: Level
    """Largest level whose domains the axis's groups cross; `device` if the groups stay on their nodes."""
    seconds: float
    """Predicted time per step."""


class Rejected(Wire):
    """An alternative placement of the job."""

    what: str
    """The alternative, for people."""
    why: str
    """Reason why it is worse, for people."""


class Choice(Wire):
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
    """Alternatives that were considered."""
