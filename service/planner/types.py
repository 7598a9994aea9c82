"""Inputs and outputs of the planner: work, cluster and plan."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from regroup.service.domain.hardware import LINKS, Device, Link
from regroup.service.domain.layout import Layout
from regroup.service.planner.formulas import Checkpointing, PipelineSchedule, Sharding
from regroup.service.planner.model_shape import Model


@dataclass(frozen=True)
class Work:
    """Work of a step, independent of the layout."""

    model: Model
    global_batch: int
    """Samples per step."""
    sequence: int
    """Tokens per sample."""
    precision: str = "bf16"
    """Precision of matrix multiplications. With `fp8` and `fp4` all other operations use 16 bits."""
    flash: bool = True
    """Attention stores no scores."""

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of an activation or a gathered parameter."""
        return {"fp32": 4, "fp64": 8}.get(self.precision, 2)


@dataclass(frozen=True)
class StepCost:
    """Measured overhead of a step in addition to computation and communication, in seconds."""

    step_s: float
    """Overhead per step."""
    micro_batch_s: float
    """Overhead per micro-batch."""
    layer_s: float
    """Overhead per layer of a rank."""
    pass_s: float
    """Overhead per layer and micro-batch: forward, backward, and the latencies of their collectives."""
    crowding: float = 1.0
    """Relative speed of a rank while all others wait: ranks that share cores fill each other's bubbles."""
    stretch: float = 1.0
    """Relative time of computation and communication in a step compared with alone, because caches are cold and all
    ranks wait for the slowest."""


@dataclass(frozen=True)
class Cluster:
    """A cluster of equal nodes with one type of device."""

    device: Device
    gpus: int
    domain: int
    """Devices per fast-interconnect domain: those of a node or a rack."""
    network_bytes_s: float
    """One-way bandwidth of one device's share of the node's ports."""
    measured_link: Link | None = None
    """Measured link inside a domain."""
    costs: Mapping[str, StepCost] = field(default_factory=dict[str, StepCost], hash=False)
    """Measured overheads by kind of layout: `ddp`, `fsdp`, `tp`, `pp`. Empty if the constants apply."""

    @property
    def link(self) -> Link:
        """Link between the devices of a domain."""
        return self.measured_link or LINKS[self.device.link]


@dataclass(frozen=True)
class Plan:
    """A layout with the other settings that determine memory and time."""

    layout: Layout
    micro_batch: int
    sharding: Sharding = "fsdp"
    checkpointing: Checkpointing = "none"
    schedule: PipelineSchedule = "1f1b"
    virtual: int = 1
    """Pipeline stages per rank."""
    sequence_parallel: bool = True
    """With tensor parallelism: split the activations between the split layers over the sequence."""
    overlap: bool = True
    """Overlap communication of data parallelism with compute."""
    recomputed: float | None = None
    """Share of the layers' forward that backward recomputes; None for the share that `checkpointing` implies."""

    def micro_batches(self, work: Work) -> int:
        """Return the micro-batches per step of each data rank, with dummies if the slots do not divide evenly."""
        return -(-work.global_batch // (self.micro_batch * self.layout.data_degree))

    @property
    def shards(self) -> int:
        """Number of ranks over which `sharding` splits the states of the parameters."""
        degree = self.layout.data_degree if self.sharding == "zero1" else self.layout.dp_shard
        return degree * self.layout.cp
