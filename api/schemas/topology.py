"""Wire models of `/v1/topology`, and of why a job is where it is."""

from pydantic import BaseModel, ConfigDict

from regroup.service.domain.topology import Level


class _Wire(BaseModel):
    model_config = ConfigDict(from_attributes=True, frozen=True)


class Link(_Wire):
    """The way out of a domain."""

    bytes_per_s: float
    """Of each device in it, one way, when all send at once."""
    latency_s: float


class LevelInfo(_Wire):
    """A kind of domain."""

    level: Level
    label: str
    """Of Ray nodes, that names their domain of this level; empty for nodes and devices."""
    link: Link
    measured_s: float | None
    """When a probe measured that, Unix seconds; null where it is the table's."""


class Island(_Wire):
    """Devices of a node that reach each other best; of a node without GPUs its cores."""

    link: str
    """What joins them: `nvswitch`, `nvlink`, or `numa`, where no NVLink does."""
    gpus: list[int]
    """As the driver numbers them."""
    numa: list[int]
    """NUMA nodes that they are at, where known."""
    cores: str
    """Of these NUMA nodes, as the kernel lists them."""


class Domain(_Wire):
    """A domain of the cluster, or a node."""

    level: Level
    name: str
    """Empty for nodes of which it is not known."""
    nodes: int
    cpus: float
    free_cpus: float
    gpus: float
    free_gpus: float
    children: list["Domain"]
    islands: list[Island]
    """Of a node that a probe has looked into: what is inside of it."""


class Topology(_Wire):
    """Where the nodes that take ranks are, as placement sees it."""

    levels: list[LevelInfo]
    """The largest first."""
    domains: list[Domain]
    """Levels that nothing names are left out."""
    problems: list[str]
    """What does not fit together, and what is made of it."""


class AxisCost(_Wire):
    """What one axis of the layout costs at a placement."""

    name: str
    degree: int
    wire_bytes: float
    """That a rank sends to the next of its group in a step, as counted."""
    leaves: Level
    """The largest kind of domain that its groups leave; `device`: they stay on their nodes."""
    seconds: float


class Rejected(_Wire):
    """Another way to place the job."""

    what: str
    why: str


class Choice(_Wire):
    """Why the job's nodes are these. Predicted, to tell placements apart; not a forecast of its step time."""

    inside: str
    """The smallest domain that all its ranks are in."""
    communication_s: float
    """Of a step."""
    axes: list[AxisCost]
    """As ranks follow each other on the ground, neighbours first."""
    broken: int
    """Devices more than before that were left free on nodes which others use, too; fewer if below 0."""
    rejected: list[Rejected]
