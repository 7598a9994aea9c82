"""Wire models of `/v1/plans`. Seconds, bytes, fractions."""

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
    """One plan, taken apart."""

    layout: Degrees
    kind: str
    sharding: str
    micro_batch: int
    micro_batches: int
    """Of a step on each data rank."""
    checkpointing: str
    schedule: str
    stages_per_rank: int
    step_s: float
    tokens_s: float
    tokens_s_gpu: float
    mfu: float
    bubble: float
    """Idle share of the pipeline."""
    goodput: float
    """Share of time in committed steps, with the failures that so many devices have."""
    snapshot_stall_s: float
    cost_per_billion_tokens: float | None
    """Null if no price was given."""
    time: dict[str, float]
    """Seconds of a step by what they go to."""
    memory: list[dict[str, float]]
    """Bytes on a device of each pipeline stage by what they hold, and `total`."""
    peak_bytes: float
    capacity_bytes: float
    host_bytes: float
    """Of a node, for snapshots and mirrors."""
    why: str
    spec: dict[str, dict[str, Any]]
    """The parts of a job spec that say this plan."""
    obstacles: list[str]
    """What keeps the built-in trainer from running it; empty if it can."""


class LostPlan(_Wire):
    """The best of a kind of layout that is not among the best plans."""

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
    """A number of the hardware that was measured, and what it stands in for."""

    name: str
    value: float
    table: float
    """What would have counted."""
    time_s: float
    """When it was measured, Unix seconds."""
    job_id: str
    """By which probe."""


class PlanReport(_Wire):
    """The best plans, the fastest first; why other kinds lost; the sizes the best can move between."""

    question: str
    parameters: int
    plans: list[Plan]
    lost: list[LostPlan]
    ladder: list[LadderSize]
    measured_values: list[MeasuredValue]
    """What of the hardware was measured by a probe; all else is the table's."""
    markdown: str
    """The same for people, as a page."""
