"""Wire models of the plan of a job and the predictions for its generations. Units: seconds, bytes, fractions."""

from typing import Any

from regroup.api.schemas.plans import PlanReport
from regroup.api.schemas.wire import Wire
from regroup.service.domain.layout import Layout


class StepMetrics(Wire):
    """Cost of a step; null for unknown values."""

    step_s: float | None
    """Time of a step, in seconds."""
    peak_bytes: float | None
    """Peak memory of a rank: allocated by torch on a GPU, used by the process on a CPU."""
    bubble: float | None
    """Fraction of forward and backward in which a pipeline rank is idle; null without a pipeline."""


class Prediction(Wire):
    """Predictions and measured values of one generation."""

    generation: int
    """Number of the generation."""
    ranks: int
    """Number of its ranks."""
    device: str
    """Device of the prediction, as named in the hardware table."""
    probe_job_id: str | None = None
    """Probe whose measured values the prediction uses; null if it uses only the hardware table: then it is a rough
    estimate."""
    predicted: StepMetrics
    """Prediction that was recorded when the generation was formed."""
    measured: StepMetrics
    """Medians of the newest steps, and the maximum for memory; null before the first step."""
    relative_error: StepMetrics
    """Predicted / measured - 1: positive if the prediction was too high."""


class Trial(Wire):
    """A candidate layout that was tried for a few steps."""

    layout: Layout
    """Layout of the candidate."""
    predicted_s: float | None
    """Predicted time of a step; null if it is unknown."""
    measured_s: float | None
    """Median time of a step; null if the candidate could not be tried."""
    generation: int
    """Number of the generation that ran the trial; 0 if it did not run."""
    why: str
    """Reason why the candidate could not be tried."""


class JobPlan(Wire):
    """The plan of a job, its trials and its predictions."""

    requested: dict[str, Any] | None
    """`layout.auto` of the submitted spec; null if the spec sets the layout: then there is no report."""
    given: list[str]
    """Fields that the spec sets; the planner chose all others."""
    planned_s: float | None
    """Time of the plan, in Unix seconds."""
    report: PlanReport | None
    """The best plans that the job can run, of which it runs the first, and the reasons against others."""
    trials: list[Trial]
    """Trials of `refine: measure`, in the order in which they ran."""
    kept: Layout | None
    """Layout chosen by the trials; null while they continue, or if they were stopped."""
    kept_why: str
    """Reason for that choice, for people."""
    generations: list[Prediction]
    """Generations that have a prediction, oldest first."""
    why_not: str
    """Reason why the newest generation has no prediction; empty if it has one, or if the prediction is pending."""
