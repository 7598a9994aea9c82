"""What a probe of the cluster has measured, by node, by level, and of software: values (see `measured_reading`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regroup.service.domain.topology import Level
from regroup.service.policy.topology.device_islands import Island


@dataclass(frozen=True)
class MeasuredNode:
    """A node by itself, all of its devices at work."""

    name: str
    ranks: int
    domains: tuple[str, ...]
    """Of `DOMAIN_LEVELS`, when it was measured."""
    flops: Mapping[str, float]
    """Operations a second of its slowest device in large products, by dtype."""
    memory_bytes_s: float
    """Of its slowest device."""
    islands: tuple[Island, ...]
    fabric: str
    """What NVLink joins its devices to across nodes; empty if nothing."""


@dataclass(frozen=True)
class MeasuredLevel:
    """The way out of domains of a level, as their devices share it: the median of what was measured of it."""

    level: Level
    bytes_s: float
    latency_s: float
    slowest_bytes_s: float
    pairs: int
    """Of nodes; 0 for what is inside of nodes, which rings measure."""


@dataclass(frozen=True)
class MeasuredCollective:
    """One collective at one size."""

    name: str
    scope: str
    """`all` ranks, or those of each `node` among themselves."""
    ranks: int
    size_bytes: int
    seconds: float

    @property
    def bus_bytes_s(self) -> float:
        """What a link carries, as nccl-tests counts it: alike for all numbers of ranks where links are the limit."""
        share = 1.0 if self.name == "broadcast" else (self.ranks - 1) / self.ranks
        return (2 if self.name == "all_reduce" else 1) * share * self.size_bytes / self.seconds


@dataclass(frozen=True)
class MeasuredMatmul:
    """Products of square matrices, by the median device."""

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
    """A whole step of a tiny model, which has next to nothing to compute."""

    kind: str
    """How it was spread: `ddp`, `fsdp`, `tp` or `pp`."""
    layers: int
    micro_batches: int
    seconds: float


@dataclass(frozen=True)
class Shape:
    """A transformer beside its depth, and what it is given: `batch` samples of a micro-batch."""

    batch: int
    sequence: int
    dim: int
    heads: int
    ffn: int
    vocabulary: int


@dataclass(frozen=True)
class MeasuredLoad:
    """A whole step of a transformer that has something to compute, in 32 bits."""

    kind: str
    layers: int
    micro_batches: int
    shape: Shape
    seconds: float


@dataclass(frozen=True)
class Anomaly:
    """A node or a link that is not like the others."""

    kind: str
    """`node` or `link`."""
    nodes: tuple[str, ...]
    measure: str
    """`result`, `memory`, `bandwidth`, `latency`, or a dtype."""
    message: str


@dataclass(frozen=True)
class ProbeResult:
    """One probe's result."""

    job_id: str
    time_s: float
    """When it ended, Unix seconds."""
    kind: str
    """`cpu` or `cuda`."""
    device: str
    """As the driver calls it."""
    ranks: int
    nodes: tuple[MeasuredNode, ...]
    levels: tuple[MeasuredLevel, ...]
    """The innermost first; only those that were measured."""
    collectives: tuple[MeasuredCollective, ...]
    matmuls: tuple[MeasuredMatmul, ...]
    anomalies: tuple[Anomaly, ...]
    blocks: tuple[MeasuredBlock, ...] = ()
    """Of CPUs, like all that follow."""
    steps: tuple[MeasuredStep, ...] = ()
    alone_flops: float | None = None
    """Operations a second of one rank's products while all others wait."""
    rank_bytes: float | None = None
    """What a rank's process takes that trains next to nothing."""
    loads: tuple[MeasuredLoad, ...] = ()
    """By how they were spread; none of earlier probes."""


def fabrics_of(probes: Sequence[ProbeResult]) -> dict[str, str]:
    """What a node is called for good → the NVLink fabric that a probe has found it in."""
    return {node.name: node.fabric for probe in probes for node in probe.nodes if node.fabric}
