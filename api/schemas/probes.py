"""Wire models of `/v1/probes`. Units: bytes, seconds, FLOP/s."""

from pydantic import BaseModel, ConfigDict

from regroup.service.domain.topology import Level


class _Wire(BaseModel):
    model_config = ConfigDict(from_attributes=True, frozen=True)


class ProbedNode(_Wire):
    """Measured values of a node: those of its slowest device, while all its devices are busy."""

    name: str
    ranks: int
    domains: list[str]
    """Zone, block, rack and gpu_domain; empty if unknown."""
    flops: dict[str, float]
    """FLOP/s of large matrix products, by dtype."""
    memory_bytes_s: float


class ProbedLevel(_Wire):
    """The links out of the domains of a level, per device while all devices send: medians."""

    level: Level
    bytes_s: float
    latency_s: float
    slowest_bytes_s: float
    pairs: int
    """Number of measured pairs of nodes; 0 for links within nodes."""


class ProbedCollective(_Wire):
    """One collective at one size: the time of the slowest rank."""

    name: str
    scope: str
    """`all`: one group of all ranks. `node`: one group per node, all at the same time."""
    ranks: int
    size_bytes: int
    seconds: float
    bus_bytes_s: float
    """Bus bandwidth as defined by nccl-tests."""


class ProbedMatmul(_Wire):
    """FLOP/s of products of square matrices: the median over devices."""

    dtype: str
    side: int
    flops: float


class ProbedBlock(_Wire):
    """Forward and backward of a block of the built-in transformer in fp32, on all ranks at the same time."""

    batch: int
    sequence: int
    dim: int
    heads: int
    ffn: int
    seconds: float


class ProbedStep(_Wire):
    """A complete step of a tiny model with almost no computation."""

    kind: str
    """Parallelism: `ddp`, `fsdp`, `tp` in pairs, or `pp` in two stages."""
    layers: int
    micro_batches: int
    seconds: float


class Anomaly(_Wire):
    """A node or a link that is an outlier."""

    kind: str
    """`node` or `link`."""
    nodes: list[str]
    measure: str
    """`result`, `memory`, `bandwidth`, `latency`, or a dtype."""
    message: str


class Probe(_Wire):
    """The measured values of a probe."""

    job_id: str
    time_s: float
    """Time at which the probe ended, in Unix seconds."""
    kind: str
    """`cpu` or `cuda`."""
    device: str
    """Device type as named by the driver."""
    ranks: int
    nodes: list[ProbedNode]
    levels: list[ProbedLevel]
    """Measured levels, innermost first."""
    collectives: list[ProbedCollective]
    matmuls: list[ProbedMatmul]
    anomalies: list[Anomaly]
    blocks: list[ProbedBlock]
    """Blocks; measured only on CPUs, as are `steps` and `alone_flops`."""
    steps: list[ProbedStep]
    alone_flops: float | None
    """FLOP/s of one rank's matrix products while all other ranks wait."""


class ProbeList(_Wire):
    """The newest probe of each device type."""

    probes: list[Probe]
