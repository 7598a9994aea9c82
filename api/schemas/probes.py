"""Wire models of `/v1/probes`. Bytes, seconds, operations a second."""

from pydantic import BaseModel, ConfigDict

from regroup.service.domain.topology import Level


class _Wire(BaseModel):
    model_config = ConfigDict(from_attributes=True, frozen=True)


class ProbedNode(_Wire):
    """A node by itself, all of its devices at work; of its slowest device."""

    name: str
    ranks: int
    domains: list[str]
    """Zone, block, rack and gpu_domain, empty where not known."""
    flops: dict[str, float]
    """Of large matrix products, by dtype."""
    memory_bytes_s: float


class ProbedLevel(_Wire):
    """The way out of domains of a level, as its devices share it: medians."""

    level: Level
    bytes_s: float
    latency_s: float
    slowest_bytes_s: float
    pairs: int
    """Of nodes; 0 for what is inside of nodes."""


class ProbedCollective(_Wire):
    """One collective at one size, on the rank that took longest."""

    name: str
    scope: str
    """`all` ranks, or those of each `node` among themselves, all nodes at once."""
    ranks: int
    size_bytes: int
    seconds: float
    bus_bytes_s: float
    """As nccl-tests counts it."""


class ProbedMatmul(_Wire):
    """Products of square matrices, by the median device."""

    dtype: str
    side: int
    flops: float


class ProbedBlock(_Wire):
    """Forward and backward of the built-in transformer's block in 32 bits, on all ranks at once."""

    batch: int
    sequence: int
    dim: int
    heads: int
    ffn: int
    seconds: float


class ProbedStep(_Wire):
    """A whole step of a tiny model, which has next to nothing to compute."""

    kind: str
    """How it was spread: `ddp`, `fsdp`, `tp` in pairs, `pp` in two stages."""
    layers: int
    micro_batches: int
    seconds: float


class Anomaly(_Wire):
    """Node or link that is an outlier."""

    kind: str
    """`node` or `link`."""
    nodes: list[str]
    measure: str
    """`result`, `memory`, `bandwidth`, `latency`, or a dtype."""
    message: str


class Probe(_Wire):
    """What one probe has measured."""

    job_id: str
    time_s: float
    """When it ended, Unix seconds."""
    kind: str
    """`cpu` or `cuda`."""
    device: str
    """As the driver calls it."""
    ranks: int
    nodes: list[ProbedNode]
    levels: list[ProbedLevel]
    """The innermost first; only those that were measured."""
    collectives: list[ProbedCollective]
    matmuls: list[ProbedMatmul]
    anomalies: list[Anomaly]
    blocks: list[ProbedBlock]
    """Of CPUs, like the next two."""
    steps: list[ProbedStep]
    alone_flops: float | None
    """Operations a second of one rank's products while all others wait."""


class ProbeList(_Wire):
    """The newest of each kind of device."""

    probes: list[Probe]
