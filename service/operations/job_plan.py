"""The plan of a job: the planner's choice, its trials, and predicted against measured step metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from regroup.service.domain.errors import SpecError
from regroup.service.domain.layout import Layout
from regroup.service.planner.from_spec import work_of
from regroup.service.planner.predictions import SHOWN_STEPS, StepMetrics, measure_steps, relative_error
from regroup.service.planner.stored_values import (
    read_layout,
    read_mapping,
    read_number,
    read_text,
    read_texts,
)
from regroup.service.store.rows.records import Generation, JobRow
from regroup.service.store.store import Store

_METRICS = tuple(each.name for each in fields(StepMetrics))


@dataclass(frozen=True)
class PredictionComparison:
    """Predicted and measured step metrics of one generation."""

    generation: int
    ranks: int
    device: str
    """Device type of the prediction; empty if the record lacks it."""
    probe_job_id: str | None
    """Probe whose measured values the prediction uses; None if it uses only the hardware table."""
    predicted: StepMetrics
    measured: StepMetrics
    relative_error: StepMetrics
    """Predicted / measured - 1."""


@dataclass(frozen=True)
class Trial:
    """A candidate layout that ran for a few steps."""

    layout: Layout
    predicted_s: float | None
    """Predicted seconds per step; None if the record lacks it."""
    measured_s: float | None
    """Median seconds per step; None if the layout could not be tried."""
    generation: int
    why: str
    """Reason why the layout could not be tried."""


@dataclass(frozen=True)
class JobPlan:
    """The planner's choice for a job, and its result."""

    requested: Mapping[str, Any] | None
    """`layout.auto` of the submitted spec; None if the spec sets the layout itself. There is no report then."""
    given: tuple[str, ...]
    """Fields that the spec sets."""
    planned_s: float | None
    """Time of the choice in Unix seconds."""
    report: Mapping[str, Any] | None
    """The planner's report: see `planner.explain.Report`."""
    trials: tuple[Trial, ...]
    """Trials of `refine: measure` in the order in which they ran."""
    kept: Layout | None
    """Layout that the trials selected; None while they run, or if they were stopped."""
    kept_why: str
    """Reason of that selection."""
    generations: tuple[PredictionComparison, ...]
    """Generations with a prediction, oldest first."""
    why_not: str
    """Reason why the newest generation has no prediction; empty if it has one or will get one."""


async def compare_generations(
    store: Store, job_id: str, generations: Sequence[Generation]
) -> list[PredictionComparison]:
    """Compare predicted and measured metrics of these generations. Skip generations without a prediction."""
    predictions = await store.predictions.of_job(job_id) if generations else {}
    return [
        await _compare(store, job_id, generation, predictions[generation.number])
        for generation in generations
        if "step_s" in predictions.get(generation.number, {})
    ]


async def get_job_plan(store: Store, job: JobRow) -> JobPlan:
    """Return the plan of a job, and its result."""
    plan, generations = await store.predictions.plan(job.id) or {}, await store.generations(job.id)
    comparisons = await compare_generations(store, job.id, generations)
    predictions = await store.predictions.of_job(job.id)
    trials = [each.data for each in await store.predictions.trials(job.id)]
    end = next((each for each in trials if "kept" in each), None)
    why_not = read_text(predictions.get(job.generation, {}), "why_not") or _why_not(job)
    return JobPlan(
        requested=read_mapping(plan, "requested"),
        given=read_texts(plan, "given"),
        planned_s=read_number(plan, "planned_s"),
        report=read_mapping(plan, "report"),
        trials=tuple(found for each in trials if "layout" in each and (found := _trial(each)) is not None),
        kept=read_layout(end.get("kept")) if end else None,
        kept_why=read_text(end, "why") if end else "",
        generations=tuple(comparisons),
        why_not=why_not,
    )


async def _compare(store: Store, job_id: str, generation: Generation, data: Mapping[str, Any]) -> PredictionComparison:
    rows = await store.predictions.steps(job_id, generation.number, SHOWN_STEPS)
    predicted = StepMetrics(**{name: read_number(data, name) for name in _METRICS})
    measured = measure_steps(rows, generation.start_step)
    error = StepMetrics(
        **{name: relative_error(getattr(predicted, name), getattr(measured, name)) for name in _METRICS}
    )
    ranks = int(read_number(data, "ranks") or generation.world_size)
    return PredictionComparison(
        generation.number, ranks, read_text(data, "device"), read_text(data, "probe_job_id") or None, predicted,
        measured, error,
    )  # fmt: skip


def _trial(data: Mapping[str, Any]) -> Trial | None:
    layout = read_layout(data.get("layout"))
    if layout is None:
        return None
    predicted_s, measured_s = read_number(data, "predicted_s"), read_number(data, "measured_s")
    return Trial(layout, predicted_s, measured_s, int(read_number(data, "generation") or 0), read_text(data, "why"))


def _why_not(job: JobRow) -> str:
    try:
        work_of(job.parsed_spec())
    except SpecError as error:
        return str(error.issues[0].message)
    return ""
