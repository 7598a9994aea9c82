"""Wire models of `/v1/probes`. Units: bytes, seconds, FLOP/s."""

from regroup.api.schemas.wire import Wire
from regroup.service.domain.topology import Level


class ProbedNode(Wire):
    """Measured values of a node: those of its slowest device, while all its devices are busy."""

    name: str
    """Name of the node."""
    ranks: int
    """Number of ranks on it."""
    domains: list[str]
    """Zone, block, rack and gpu_domain; empty if unknown."""
    flops: dict[str, float]
    """FLOP/s of large matrix products, by dtype."""
    memory_bytes_s: float
    """Rate of large copies within the device's memory."""


class ProbedLevel(Wire):
    """The links out of the domains of a level, per device while all devices send: medians."""

    level: Level
    """Level of the domains."""
    bytes_s: float
    """Bandwidth per device."""
    latency_s: float
    """Latency of a small message."""
    slowest_bytes_s: float
    """Bandwidth of the slowest pair."""
    pairs: int
    """Number of measured pairs of nodes; 0 for links within nodes."""


class ProbedCollective(Wire):
    """One collective at one size: the time of the slowest rank."""

    name: str
    """Name of the collective, for example `all_reduce`."""
    scope: str
    """`all`: one group of all ranks. `node`: one group per node, all at the same time."""
    ranks: int
    """Number of ranks of a group."""
    size_bytes: int
    """Size of the tensor."""
    seconds: float
    """Time of the slowest rank."""
    bus_bytes_s: float
    """Bus bandwidth as defined by nccl-tests."""


class ProbedMatmul(Wire):
    """FLOP/s of products of square matrices: the median over devices."""

    dtype: str
    """Type of the elements."""
    side: int
    """Rows and columns of the matrices."""
    flops: float
    """Rate of the products, in FLOP/s."""


class ProbedBlock(Wire):
    """Forward and backward of a block of the built-in transformer in fp32, on all ranks at the same time."""

    batch: int
    """Samples of the batch."""
    sequence: int
    """Tokens of a sample."""
    dim: int
    """Width of the block."""
    heads: int
    """Attention heads."""
    ffn: int
    """Width of the feed-forward part."""
    seconds: float
    """Time of forward and backward."""


class ProbedStep(Wire):
    """A complete step of a tiny model with almost no computation."""

    kind: str
    """Parallelism: `ddp`, `fsdp`, `tp` in pairs, or `pp` in two stages."""
    layers: int
    """Number of layers of the model."""
    micro_batches: int
    """Number of micro-batches."""
    seconds: float
    """Time of the step."""


class Anomaly(Wire):
    """A node or a link that is an outlier."""

    kind: str
    """`node` or `link`."""
    nodes: list[str]
    """Name of the node, or names of the two ends of the link."""
    measure: str
    """`result`, `memory`, `bandwidth`, `latency`, or a dtype."""
    message: str
    """Description of the difference, for people."""


class Probe(Wire):
    """The measured values of a probe."""

    job_id: str
    """Id of the probe's job."""
    time_s: float
    """Time at which the probe ended, in Unix seconds."""
    kind: str
    """`cpu` or `cuda`."""
    device: str
    """Device type as named by the driver."""
    ranks: int
    """Number of ranks that measured."""
    nodes: list[ProbedNode]
    """Measured values of each node."""
    levels: list[ProbedLevel]
    """Measured levels, innermost first."""
    collectives: list[ProbedCollective]
    """Measured collectives."""
    matmuls: list[ProbedMatmul]
    """Measured matrix products."""
    anomalies: list[Anomaly]
    """Nodes and links that differ from the others."""
    blocks: list[ProbedBlock]
    """Blocks; measured only on CPUs, as are `steps` and `alone_flops`."""
    steps: list[ProbedStep]
    """Steps of tiny models, which show the overhead of each kind of parallelism."""
    alone_flops: float | None
    """FLOP/s of one rank's matrix products while all other ranks wait."""


class ProbeList(Wire):
    """The newest probe of each device type."""

    probes: list[Probe]
    """The probes."""
