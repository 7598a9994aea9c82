"""Wire models of what was planned of a job, and predicted of its generations. Seconds, bytes, fractions."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from regroup.api.schemas.plans import PlanReport
from regroup.service.domain.layout import Layout


class _Wire(BaseModel):
    model_config = ConfigDict(from_attributes=True, frozen=True)


class StepMetrics(_Wire):
    """What a step takes; null where it is not known."""

    step_s: float | None
    peak_bytes: float | None
    """Most memory that a rank has: on a GPU of what torch gives out, on a CPU of the process."""
    bubble: float | None
    """Part of forward and backward in which a rank of the pipeline computes nothing; null without a pipeline."""


class Prediction(_Wire):
    """One generation."""

    generation: int
    ranks: int
    device: str
    """What it was predicted for, in the hardware table's words."""
    predicted: StepMetrics
    """Written down when the generation formed."""
    measured: StepMetrics
    """Medians of its newest steps, of memory the most; null while there are none."""
    relative_error: StepMetrics
    """Predicted over measured, less one: above 0, too much was predicted."""


class Trial(_Wire):
    """A candidate that was run for a few steps."""

    layout: Layout
    predicted_s: float
    """Of a step."""
    measured_s: float | None
    """Median of its steps; null: it could not be tried."""
    generation: int
    why: str
    """Why it could not."""


class JobPlan(_Wire):
    """What was planned of a job, and what came of it."""

    requested: dict[str, Any] | None
    """`layout.auto` of the spec that was submitted; null where it said the layout itself, and there is no report."""
    given: list[str]
    """Fields that it had fixed; all else was chosen."""
    planned_s: float | None
    """When, in Unix seconds."""
    report: PlanReport | None
    """The best plans that the job could run, the first of which it runs, and why others lost."""
    trials: list[Trial]
    """The journal of `refine: measure`, in the order in which they were run."""
    kept: Layout | None
    """What the trials came to; null as long as they go on, or where they were given up."""
    kept_why: str
    generations: list[Prediction]
    """Those of which something was predicted, oldest first."""
    why_not: str
    """Why nothing is predicted of its newest generation; empty if something is, or that has yet to come."""
