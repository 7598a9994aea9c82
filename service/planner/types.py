"""What is asked and what is answered: work, cluster, plan. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from regroup.service.domain.hardware import LINKS, Device, Link
from regroup.service.domain.layout import Layout
from regroup.service.planner.formulas import Checkpointing, PipelineSchedule, Sharding
from regroup.service.planner.model_shape import Model


@dataclass(frozen=True)
class Work:
    """What a step computes, whatever the layout."""

    model: Model
    global_batch: int
    """Samples."""
    sequence: int
    """Tokens of a sample."""
    precision: str = "bf16"
    """Of the matrix products: `fp8` and `fp4` leave the rest at 16 bits."""
    flash: bool = True
    """Attention keeps no scores."""

    @property
    def element_bytes(self) -> int:
        """Of an activation, and of a parameter that is gathered to compute with."""
        return {"fp32": 4, "fp64": 8}.get(self.precision, 2)


@dataclass(frozen=True)
class StepCost:
    """What a step costs beside what is computed and sent, where that was measured. Seconds."""

    step_s: float
    """Of every step."""
    micro_batch_s: float
    """Of each micro-batch."""
    layer_s: float
    """Of each layer of a rank."""
    pass_s: float
    """Of each layer in each micro-batch: forward, backward, and their collectives' latencies."""
    crowding: float = 1.0
    """How much faster a rank is while all others wait: ranks that share cores fill each other's bubbles."""
    stretch: float = 1.0
    """How much longer it takes to compute and to send in a step than by itself: caches are cold there, and all wait
    for the slowest."""


@dataclass(frozen=True)
class Cluster:
    """Equal nodes of one device."""

    device: Device
    gpus: int
    domain: int
    """Devices that the device's link joins: a node, or a rack of them."""
    network_bytes_s: float
    """One way out of one device's share of the ports."""
    measured: Link | None = None
    """What was measured of the device's link."""
    costs: Mapping[str, StepCost] = field(default_factory=dict[str, StepCost], hash=False)
    """What was measured of steps, by kind of layout: `ddp`, `fsdp`, `tp`, `pp`. None: as the constants say."""

    @property
    def link(self) -> Link:
        """What joins the devices of a domain."""
        return self.measured or LINKS[self.device.link]


@dataclass(frozen=True)
class Plan:
    """A layout, and what else decides memory and time."""

    layout: Layout
    micro_batch: int
    sharding: Sharding = "fsdp"
    checkpointing: Checkpointing = "none"
    schedule: PipelineSchedule = "1f1b"
    virtual: int = 1
    """Stages on a rank."""
    sequence_parallel: bool = True
    """With tp: what is between the split layers is split over the sequence."""
    overlap: bool = True
    """Communication of data parallelism runs beside compute."""
    recomputed: float | None = None
    """Share of the layers' products done again in backward; None for what `checkpointing` implies."""

    def micro_batches(self, work: Work) -> int:
        """Of a step on each data rank; of slots that do not deal evenly some ranks run dummies."""
        return -(-work.global_batch // (self.micro_batch * self.layout.data_degree))

    @property
    def shards(self) -> int:
        """Ranks the parameters' states are spread over, by whatever `sharding` spreads."""
        degree = self.layout.data_degree if self.sharding == "zero1" else self.layout.dp_shard
        return degree * self.layout.cp
