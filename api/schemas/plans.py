"""Wire models of `/v1/plans`. Units: seconds, bytes, fractions."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class _Wire(BaseModel):
    model_config = ConfigDict(from_attributes=True, frozen=True)


class Degrees(_Wire):
    """Parallel degrees; their product is the number of devices."""

    dp_replicate: int
    dp_shard: int
    cp: int
    tp: int
    pp: int

    def __str__(self) -> str:
        parts = [f"{name}={degree}" for name, degree in self.model_dump().items() if degree > 1]
        return " × ".join(parts) or "1 device"


class Plan(_Wire):
    """A plan with its breakdown of time and memory."""

    layout: Degrees
    kind: str
    sharding: str
    micro_batch: int
    micro_batches: int
    """Number per step on each data-parallel rank."""
    checkpointing: str
    schedule: str
    stages_per_rank: int
    step_s: float
    tokens_s: float
    tokens_s_gpu: float
    mfu: float
    bubble: float
    """Idle fraction of the pipeline."""
    goodput: float
    """Fraction of time in committed steps, with the failure rate of this number of devices."""
    snapshot_stall_s: float
    cost_per_billion_tokens: float | None
    """Null if no price was given."""
    time: dict[str, float]
    """Parts of the step time, in seconds."""
    memory: list[dict[str, float]]
    """Parts of the memory of a device, in bytes, and `total`; for each pipeline stage."""
    peak_bytes: float
    capacity_bytes: float
    host_bytes: float
    """Memory of a node for snapshots and mirrors."""
    why: str
    spec: dict[str, dict[str, Any]]
    """Sections of a job spec for this plan."""
    obstacles: list[str]
    """Reasons why the built-in trainer cannot run the plan; empty if it can."""


class LostPlan(_Wire):
    """The best plan of a kind of layout that is not among the best plans."""

    kind: str
    layout: Degrees
    fits: bool
    step_s: float | None
    """Null if it does not fit."""
    peak_bytes: float
    why: str


class LadderSize(_Wire):
    """The best plan at another number of devices."""

    gpus: int
    layout: Degrees
    fits: bool
    step_s: float
    tokens_s: float


class MeasuredValue(_Wire):
    """A measured property of the hardware, and the table's value that it replaces."""

    name: str
    value: float
    table: float
    """Value of the hardware table."""
    time_s: float
    """Time of the measurement, in Unix seconds."""
    job_id: str
    """Id of the probe's job."""


class PlanReport(_Wire):
    """The best plans, fastest first, the reasons against other kinds, and the sizes that the best plan can run with."""

    question: str
    parameters: int
    plans: list[Plan]
    lost: list[LostPlan]
    ladder: list[LadderSize]
    measured_values: list[MeasuredValue]
    """Properties of the hardware that a probe measured; all others are from the hardware table."""
    markdown: str
    """The report for people, as a Markdown page."""
