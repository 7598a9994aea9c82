"""Prediction for one size of a job: step time and memory with their parts, and the bytes along each axis."""

from collections.abc import Mapping
from dataclasses import dataclass

from regroup.service.domain.layout import Layout
from regroup.service.planner.capacity import JobCapacity
from regroup.service.planner.from_spec import plan_of, state_bytes_of, work_of
from regroup.service.planner.memory_model import stage_memory
from regroup.service.planner.time_model import step_time
from regroup.service.planner.validation import check_request
from regroup.service.policy.placement.communication_cost import Axis
from regroup.service.policy.placement.traffic import axes_of_spec, has_work_figures
from regroup.service.spec.job import JobSpec


@dataclass(frozen=True)
class SizePrediction:
    """Predicted cost of a step at one size."""

    step_s: float
    time_parts_s: Mapping[str, float]
    """Activity → seconds per step."""
    peak_bytes: float
    """Memory of the fullest device."""
    memory_parts_bytes: Mapping[str, float]
    """Content → bytes on the fullest device."""
    capacity_bytes: float
    """Memory of a device."""


def predict_size(spec: JobSpec, layout: Layout, capacity: JobCapacity) -> SizePrediction:
    """Predict a step of a job with a layout on devices of this kind.

    Raises:
        SpecError: the planner cannot model the job, or the device does not support its precision.
    """
    work, plan, constants = work_of(spec), plan_of(spec, layout), capacity.constants.on(capacity.device)
    cluster, training = capacity.cluster(layout.world_size), spec.training
    check_request(work, cluster)
    assert training is not None, "a job that the planner models has one"
    fullest = max(stage_memory(work, plan, constants, state_bytes_of(training)), key=lambda stage: stage.total)
    time = step_time(work, cluster, plan, constants)
    parts_s = {name.removesuffix("_s"): seconds for name, seconds in vars(time).items() if seconds > 0}
    parts_bytes = {name: size for name, size in vars(fullest).items() if size > 0}
    return SizePrediction(time.step_s, parts_s, fullest.total, parts_bytes, capacity.device.memory_bytes)


def find_axes(spec: JobSpec, layout: Layout) -> tuple[Axis, ...]:
    """Return the axes with more than one rank, the innermost first; none if the program controls communication."""
    return tuple(axis for axis in axes_of_spec(spec, layout) if axis.degree > 1) if has_work_figures(spec) else ()
