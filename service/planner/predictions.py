"""Step time, memory and pipeline bubble of a generation: predicted, measured, and the relative error."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from regroup.service.domain.layout import Layout
from regroup.service.planner.constants import FITTED, Constants
from regroup.service.planner.formulas import bubble_share
from regroup.service.planner.from_spec import plan_of, state_bytes_of, work_of
from regroup.service.planner.memory_model import stage_memory
from regroup.service.planner.time_model import step_time
from regroup.service.planner.types import Cluster
from regroup.service.planner.validation import check_request
from regroup.service.spec.job import JobSpec

SHOWN_STEPS = 100
"""Number of the newest steps of a generation from which metrics are measured."""
WARM_UP = 2
"""Number of first steps of a generation that include one-time work."""


@dataclass(frozen=True)
class StepMetrics:
    """Metrics of a step; None for an unknown value."""

    step_s: float | None
    peak_bytes: float | None
    """Peak memory of a rank: on a GPU as allocated by torch, on a CPU of the process."""
    bubble: float | None
    """Idle share of forward and backward of a pipeline's rank; None without a pipeline."""


class Row(Protocol):
    """A step as a generation reported it."""

    @property
    def step(self) -> int: ...

    @property
    def duration_s(self) -> float | None: ...

    @property
    def extra(self) -> Mapping[str, Any]: ...


def predict_step(spec: JobSpec, layout: Layout, cluster: Cluster, constants: Constants = FITTED) -> StepMetrics:
    """Predict the metrics of a step of the job with this layout on these devices.

    The bubble is that of the schedule's formula for stages of equal duration. The memory of a GPU excludes
    `reserved_gb` and `slack`, because the measured value counts only the memory that torch allocates.

    Raises:
        SpecError: the planner cannot model the job, or the device does not support the precision.
    """
    work, plan, constants = work_of(spec), plan_of(spec, layout), constants.on(cluster.device)
    check_request(work, cluster)
    assert spec.training is not None, "a job that the planner models has one"
    stages = stage_memory(work, plan, constants, state_bytes_of(spec.training))
    is_cpu = cluster.device.name == "cpu"
    share = bubble_share(layout.pp, plan.micro_batches(work), plan.schedule, plan.virtual)
    return StepMetrics(
        step_time(work, cluster, plan, constants).step_s,
        max(stage.total - (0.0 if is_cpu else stage.slack) for stage in stages),
        share if layout.pp > 1 else None,
    )


def measure_steps(rows: Sequence[Row], start_step: int) -> StepMetrics:
    """Return the metrics of a generation's steps: medians, and the maximum for memory.

    The warm-up steps count only if there are no others.

    Args:
        rows: steps of one generation.
        start_step: number of committed steps at the start of the generation.
    """
    warm = [row for row in rows if row.step > start_step + WARM_UP] or list(rows)
    durations = [row.duration_s for row in warm if row.duration_s]
    peaks = [float(peak) for row in warm if (peak := row.extra.get("peak_bytes"))]
    idle = [float(share) for row in warm if (share := row.extra.get("pipeline_idle")) is not None]
    return StepMetrics(
        median(durations) if durations else None,
        max(peaks, default=None),
        median(idle) if idle else None,
    )


def relative_error(predicted: float | None, measured: float | None) -> float | None:
    """Return predicted / measured - 1. Above 0, the prediction was too high."""
    return None if predicted is None or not measured else predicted / measured - 1
