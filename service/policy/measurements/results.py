"""Results of a probe: measured values by node, by level and of software (see `parse`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regroup.service.domain.topology import Level
from regroup.service.policy.topology.device_islands import Island


@dataclass(frozen=True)
class MeasuredNode:
    """One node, with all of its devices active."""

    name: str
    ranks: int
    domains: tuple[str, ...]
    """Domains at `DOMAIN_LEVELS` when it was measured."""
    flops: Mapping[str, float]
    """Operations per second of its slowest device in large matrix multiplications, by dtype."""
    memory_bytes_s: float
    """Memory bandwidth of its slowest device."""
    islands: tuple[Island, ...]
    fabric: str
    """NVLink fabric across nodes; empty if there is none."""


@dataclass(frozen=True)
class MeasuredLevel:
    """Uplink of domains of a level, as their devices share it: the median of the measurements."""

    level: Level
    bytes_s: float
    latency_s: float
    slowest_bytes_s: float
    pairs: int
    """Number of node pairs; 0 for links inside nodes, which rings measure."""


@dataclass(frozen=True)
class MeasuredCollective:
    """One collective at one size."""

    name: str
    scope: str
    """`all` ranks, or the ranks of each `node`."""
    ranks: int
    size_bytes: int
    seconds: float

    @property
    def bus_bytes_s(self) -> float:
        """Bus bandwidth as defined by nccl-tests, which is independent of the number of ranks if links are the
        limit."""
        share = 1.0 if self.name == "broadcast" else (self.ranks - 1) / self.ranks
        return (2 if self.name == "all_reduce" else 1) * share * self.size_bytes / self.seconds


@dataclass(frozen=True)
class MeasuredMatmul:
    """Matrix multiplications of square matrices, by the median device."""

    dtype: str
    side: int
    flops: float


@dataclass(frozen=True)
class MeasuredBlock:
    """Forward and backward of the built-in transformer's block in 32 bits, on all ranks at once."""

    batch: int
    sequence: int
    dim: int
    heads: int
    ffn: int
    seconds: float


@dataclass(frozen=True)
class MeasuredStep:
    """A whole step of a tiny model with almost no computation."""

    kind: str
    """Kind of parallelism: `ddp`, `fsdp`, `tp` or `pp`."""
    layers: int
    micro_batches: int
    seconds: float


@dataclass(frozen=True)
class Shape:
    """Sizes of a transformer except its depth, with `batch` samples per micro-batch."""

    batch: int
    sequence: int
    dim: int
    heads: int
    ffn: int
    vocabulary: int


@dataclass(frozen=True)
class MeasuredLoad:
    """A whole step of a transformer with substantial computation, in 32 bits."""

    kind: str
    layers: int
    micro_batches: int
    shape: Shape
    seconds: float


@dataclass(frozen=True)
class Anomaly:
    """A node or link that is an outlier."""

    kind: str
    """`node` or `link`."""
    nodes: tuple[str, ...]
    measure: str
    """`result`, `memory`, `bandwidth`, `latency`, or a dtype."""
    message: str


@dataclass(frozen=True)
class ProbeResult:
    """Result of one probe."""

    job_id: str
    time_s: float
    """End of the probe in Unix seconds."""
    kind: str
    """`cpu` or `cuda`."""
    device: str
    """Name that the driver reports."""
    ranks: int
    nodes: tuple[MeasuredNode, ...]
    levels: tuple[MeasuredLevel, ...]
    """Measured levels, the innermost first."""
    collectives: tuple[MeasuredCollective, ...]
    matmuls: tuple[MeasuredMatmul, ...]
    anomalies: tuple[Anomaly, ...]
    blocks: tuple[MeasuredBlock, ...] = ()
    """CPU only, like all following fields."""
    steps: tuple[MeasuredStep, ...] = ()
    alone_flops: float | None = None
    """Operations per second of one rank's matrix multiplications while all others wait."""
    rank_bytes: float | None = None
    """Memory of a rank's process with almost no training."""
    loads: tuple[MeasuredLoad, ...] = ()
    """Steps by kind of parallelism; empty for earlier probes."""


def fabrics_of(probes: Sequence[ProbeResult]) -> dict[str, str]:
    """Return permanent name of a node → NVLink fabric that a probe found."""
    return {node.name: node.fabric for probe in probes for node in probe.nodes if node.fabric}
