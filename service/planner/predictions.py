"""Step time, memory and bubble of a generation: as predicted, and as its steps show them, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from regroup.service.domain.layout import Layout
from regroup.service.planner.constants import FITTED, Constants
from regroup.service.planner.formulas import bubble_share
from regroup.service.planner.from_spec import kept_of, plan_of, work_of
from regroup.service.planner.memory_model import stage_memory
from regroup.service.planner.time_model import step_time
from regroup.service.planner.types import Cluster
from regroup.service.planner.validation import check
from regroup.service.spec.job import JobSpec

SHOWN_STEPS = 100
"""Steps that measured figures are taken from: the newest of a generation."""
WARM_UP = 2
"""Steps of a generation that also build what it keeps."""


@dataclass(frozen=True)
class Figures:
    """What a step takes. None: not known."""

    step_s: float | None
    peak_bytes: float | None
    """Most memory that a rank has: on a GPU of what torch gives out, on a CPU of the process."""
    bubble: float | None
    """Part of forward and backward in which a rank of the pipeline computes nothing; None without a pipeline."""


class Row(Protocol):
    """A step as a generation reported it."""

    @property
    def step(self) -> int: ...

    @property
    def duration_s(self) -> float | None: ...

    @property
    def extra(self) -> Mapping[str, Any]: ...


def predicted(spec: JobSpec, layout: Layout, cluster: Cluster, constants: Constants = FITTED) -> Figures:
    """What a step of the job takes at this layout on these devices.

    The bubble is the idle share of the schedule's formula, of stages that take equally long. Of a GPU's memory what
    `reserved_gb` and `slack` stand for is left out: the meter counts what torch gives out, and not what it is lost in.

    Raises:
        SpecError: the planner cannot describe the job, or the device does not compute so.
    """
    work, plan, constants = work_of(spec), plan_of(spec, layout), constants.on(cluster.device)
    check(work, cluster)
    assert spec.training is not None, "described jobs have one"
    stages = stage_memory(work, plan, constants, kept_of(spec.training))
    is_cpu = cluster.device.name == "cpu"
    share = bubble_share(layout.pp, plan.micro_batches(work), plan.schedule, plan.virtual)
    return Figures(
        step_time(work, cluster, plan, constants).step_s,
        max(stage.total - (0.0 if is_cpu else stage.slack) for stage in stages),
        share if layout.pp > 1 else None,
    )


def measured(rows: Sequence[Row], start_step: int) -> Figures:
    """What the steps of a generation took: medians, of memory the most. Its first two count only where there are no
    others.

    Args:
        rows: of one generation.
        start_step: committed steps that it began with.
    """
    warm = [row for row in rows if row.step > start_step + WARM_UP] or list(rows)
    durations = [row.duration_s for row in warm if row.duration_s]
    peaks = [float(peak) for row in warm if (peak := row.extra.get("peak_bytes"))]
    idle = [float(share) for row in warm if (share := row.extra.get("idle")) is not None]
    return Figures(
        median(durations) if durations else None,
        max(peaks, default=None),
        median(idle) if idle else None,
    )


def off(foretold: float | None, found: float | None) -> float | None:
    """Prediction over measurement, less one: above 0, too much was predicted."""
    return None if foretold is None or not found else foretold / found - 1
