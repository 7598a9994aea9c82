"""Sizes that a job can have: the legal ones, with their expected speed, memory and traffic, and the gap of a resize."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from regroup.service.domain.errors import SpecError, UnavailableError
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import Reason
from regroup.service.operations.auto_layout import LayoutPlanner
from regroup.service.operations.calculation import CALCULATIONS
from regroup.service.planner.capacity import JobCapacity
from regroup.service.planner.predictions import SHOWN_STEPS, measure_steps
from regroup.service.planner.size_predictions import SizePrediction, find_axes, predict_size
from regroup.service.planner.stored_values import read_layout
from regroup.service.policy.elasticity.autosize import ASSUMED_COST_S, expected_rate
from regroup.service.policy.placement.communication_cost import Axis
from regroup.service.spec.job import JobSpec
from regroup.service.store.rows.records import Incident, JobRow
from regroup.service.store.store import Store

_MAX_MEASURED = 20
"""Number of the newest generations whose steps are measured."""


@dataclass(frozen=True)
class JobSize:
    """A legal size of a job."""

    layout: Layout
    expected_step_s: float | None
    """Expected time of a step; None if there is no basis for it."""
    basis: str
    """Origin of that value, for people; empty without one."""
    is_measured: bool
    tokens_per_s: float | None
    prediction: SizePrediction | None
    """Prediction of the planner; None if it cannot model the job."""
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class ResizeGap:
    """Time without steps that a resize causes."""

    seconds: float
    basis: str
    """Origin of that value, for people."""


@dataclass(frozen=True)
class JobSizes:
    """The sizes that a job can have."""

    current: Layout | None
    """Layout of the newest generation; None before the first one."""
    requested: Layout | None
    """Layout of a pending resize."""
    sizes: tuple[JobSize, ...]
    """Legal sizes, the smallest first."""
    gap: ResizeGap
    open_ranks: int | None
    """Number of ranks that the open nodes hold in total, also those in use; None if it is unknown."""
    why_not: str
    """Reason why there are no predictions; empty if there are."""


@dataclass(frozen=True)
class SpecSizes:
    """The sizes that a job of a spec could have."""

    sizes: tuple[JobSize, ...]
    """Legal sizes, the smallest first."""
    open_ranks: int | None
    """Number of ranks that the open nodes hold in total, also those in use; None if it is unknown."""
    why_not: str
    """Reason why there are no predictions; empty if there are."""


async def predict_sizes(planner: LayoutPlanner, spec: JobSpec) -> SpecSizes:
    """Return the sizes that a job of a spec could have, with the predictions of the planner. Read-only."""
    predictions, total, why_not = await _find_predictions(planner, spec)
    sizes = tuple(_size(spec, layout, None, {}, predictions) for layout in spec.ladder)
    return SpecSizes(sizes, total, why_not)


async def find_sizes(store: Store, planner: LayoutPlanner, job: JobRow) -> JobSizes:
    """Return the sizes that a job can have. Read-only.

    Raises:
        SpecError: the stored spec is damaged.
    """
    spec = job.parsed_spec()
    predictions, total, why_not = await _find_predictions(planner, spec)
    measured = await _measure(store, job)
    current = read_layout(job.layout)
    sizes = tuple(_size(spec, layout, current, measured, predictions) for layout in spec.ladder)
    requested = job.intents.get("resize") or {}
    gap = find_gap(await store.incidents(job.id))
    return JobSizes(current, read_layout(requested.get("layout")), sizes, gap, total, why_not)


def find_gap(incidents: Sequence[Incident]) -> ResizeGap:
    """Return the expected gap of a resize: as of the job's resizes, else of its recoveries, else an assumption."""
    resizes, recoveries = list[float](), list[float]()
    for each in incidents:
        total = (each.data.get("durations") or {}).get("total")
        if isinstance(total, int | float):
            (resizes if each.data.get("reason") == Reason.RESIZED else recoveries).append(total)
    if resizes:
        return ResizeGap(median(resizes), f"median of {_count(len(resizes), 'resize')} of this job")
    if recoveries:
        text = f"median of {_count(len(recoveries), 'recovery', 'recoveries')} of this job, which had no resize yet"
        return ResizeGap(median(recoveries), text)
    return ResizeGap(ASSUMED_COST_S, "assumed: this job had no resize and no recovery yet")


async def _find_predictions(
    planner: LayoutPlanner, spec: JobSpec
) -> tuple[dict[Layout, SizePrediction], int | None, str]:
    """Return the predictions of all sizes, the number of ranks on open nodes, and why there are no predictions."""
    capacity, why_not = await _find_capacity(planner, spec)
    if capacity is None:
        return {}, None, why_not
    try:
        return await CALCULATIONS.run(_predict, spec, capacity), capacity.total, why_not
    except SpecError as error:
        return {}, capacity.total, error.issues[0].message


def _predict(spec: JobSpec, capacity: JobCapacity) -> dict[Layout, SizePrediction]:
    return {layout: predict_size(spec, layout, capacity) for layout in spec.ladder}


async def _find_capacity(planner: LayoutPlanner, spec: JobSpec) -> tuple[JobCapacity | None, str]:
    try:
        return await planner.capacity(spec), ""
    except SpecError as error:
        return None, error.issues[0].message
    except UnavailableError as error:
        return None, str(error)


async def _measure(store: Store, job: JobRow) -> dict[Layout, tuple[int, float]]:
    """Return layout → newest generation that ran with it, and its measured seconds per step."""
    found: dict[Layout, tuple[int, float]] = {}
    for generation in (await store.generations(job.id))[-_MAX_MEASURED:]:
        layout = read_layout(generation.layout)
        rows = await store.predictions.steps(job.id, generation.number, SHOWN_STEPS)
        step_s = measure_steps(rows, generation.start_step).step_s
        if layout is not None and step_s:
            found[layout] = (generation.number, step_s)
    return found


def _size(
    spec: JobSpec,
    layout: Layout,
    current: Layout | None,
    measured: Mapping[Layout, tuple[int, float]],
    predictions: Mapping[Layout, SizePrediction],
) -> JobSize:
    step_s, basis = _expect(layout, current, measured, predictions)
    samples, sequence = spec.samples_per_step(layout), spec.training.sequence if spec.training else None
    tokens_s = samples * sequence / step_s if step_s and samples and sequence else None
    axes = find_axes(spec, layout)
    return JobSize(layout, step_s, basis, layout in measured, tokens_s, predictions.get(layout), axes)


def _expect(
    layout: Layout,
    current: Layout | None,
    measured: Mapping[Layout, tuple[int, float]],
    predictions: Mapping[Layout, SizePrediction],
) -> tuple[float | None, str]:
    """Return the expected seconds per step, and their origin."""
    if layout in measured:
        number, step_s = measured[layout]
        return step_s, f"measured in generation {number}"
    predicted, now = predictions.get(layout), None if current is None else predictions.get(current)
    if predicted is not None and now is not None and current is not None and current in measured:
        # The error of a prediction is mostly the same for all sizes: a comparison with the present size needs that.
        _, step_s = measured[current]
        basis = f"predicted, and scaled by the present size: {step_s:.3g} s measured, {now.step_s:.3g} s predicted"
        return predicted.step_s * step_s / now.step_s, basis
    if predicted is not None:
        return predicted.step_s, "predicted by the planner"
    if current is not None and current in measured:
        degrees = {each.data_degree: 1 / step_s for each, (_, step_s) in measured.items()}
        count = _count(len(degrees), "measured size")
        return 1 / expected_rate(degrees, current.data_degree, layout.data_degree), f"estimated from {count}"
    return None, ""


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
