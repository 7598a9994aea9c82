"""Wire models of `/v1/plans`. Units: seconds, bytes, fractions."""

from typing import Any

from regroup.api.schemas.wire import Wire


class Degrees(Wire):
    """Parallel degrees; their product is the number of devices."""

    dp_replicate: int
    """Number of replicas of the model."""
    dp_shard: int
    """Number of ranks over which data parallelism splits the state."""
    cp: int
    """Context-parallel degree."""
    tp: int
    """Tensor-parallel degree."""
    pp: int
    """Number of pipeline stages."""

    def __str__(self) -> str:
        parts = [f"{name}={degree}" for name, degree in self.model_dump().items() if degree > 1]
        return " × ".join(parts) or "1 device"


class Plan(Wire):
    """A plan with its breakdown of time and memory."""

    layout: Degrees
    """Degrees of the layout."""
    kind: str
    """Kind of layout, for example `fsdp × tp`."""
    sharding: str
    """Kind of data parallelism, for example `fsdp`."""
    micro_batch: int
    """Samples of a micro-batch."""
    micro_batches: int
    """Number per step on each data-parallel rank."""
    checkpointing: str
    """Activations that are recomputed: `none`, `selective` or `full`."""
    schedule: str
    """Schedule of the pipeline."""
    stages_per_rank: int
    """Number of pipeline stages on each rank."""
    step_s: float
    """Time of a step."""
    tokens_s: float
    """Tokens per second of all devices."""
    tokens_s_gpu: float
    """Tokens per second of a device."""
    mfu: float
    """Model FLOPs of a step, divided by the peak FLOPs of the devices in that time."""
    bubble: float
    """Idle fraction of the pipeline."""
    goodput: float
    """Fraction of time in committed steps, with the failure rate of this number of devices."""
    snapshot_stall_s: float
    """Time per step in which training waits for snapshots."""
    cost_per_billion_tokens: float | None
    """Null if no price was given."""
    time: dict[str, float]
    """Parts of the step time, in seconds."""
    memory: list[dict[str, float]]
    """Parts of the memory of a device, in bytes, and `total`; for each pipeline stage."""
    peak_bytes: float
    """Peak memory of the fullest device."""
    capacity_bytes: float
    """Memory of a device."""
    host_bytes: float
    """Memory of a node for snapshots and mirrors."""
    why: str
    """Strengths and weaknesses of the plan, for people."""
    spec: dict[str, dict[str, Any]]
    """Sections of a job spec for this plan."""
    obstacles: list[str]
    """Reasons why the built-in trainer cannot run the plan; empty if it can."""


class LostPlan(Wire):
    """The best plan of a kind of layout that is not among the best plans."""

    kind: str
    """Kind of layout."""
    layout: Degrees
    """Degrees of the layout."""
    fits: bool
    """True if it fits into the memory of the devices."""
    step_s: float | None
    """Null if it does not fit."""
    peak_bytes: float
    """Peak memory of the fullest device."""
    why: str
    """Reason why it is not among the best, for people."""


class LadderSize(Wire):
    """The best plan at another number of devices."""

    gpus: int
    """Number of devices."""
    layout: Degrees
    """Degrees of the best layout."""
    fits: bool
    """True if it fits into the memory of the devices."""
    step_s: float
    """Time of a step."""
    tokens_s: float
    """Tokens per second of all devices."""


class MeasuredValue(Wire):
    """A measured property of the hardware, and the table's value that it replaces."""

    name: str
    """Name of the property."""
    value: float
    """Measured value."""
    table: float
    """Value of the hardware table."""
    time_s: float
    """Time of the measurement, in Unix seconds."""
    job_id: str
    """Id of the probe's job."""


class PlanReport(Wire):
    """The best plans, fastest first, the reasons against other kinds, and the sizes that the best plan can run with."""

    question: str
    """The request in one sentence."""
    parameters: int
    """Number of parameters of the model."""
    plans: list[Plan]
    """The best plans, fastest first."""
    lost: list[LostPlan]
    """The best plan of each other kind of layout."""
    ladder: list[LadderSize]
    """The best plan at other numbers of devices."""
    measured_values: list[MeasuredValue]
    """Properties of the hardware that a probe measured; all others are from the hardware table."""
    markdown: str
    """The report for people, as a Markdown page."""
