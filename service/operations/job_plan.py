"""What was predicted of a job's generations beside what their steps took; and what was planned of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from regroup.service.domain.errors import SpecError
from regroup.service.domain.layout import Layout
from regroup.service.planner.from_spec import work_of
from regroup.service.planner.predictions import SHOWN_STEPS, Figures, measured, off
from regroup.service.store.records import Generation, JobRow
from regroup.service.store.store import Store

_FIGURES = tuple(each.name for each in fields(Figures))


@dataclass(frozen=True)
class Compared:
    """One generation."""

    generation: int
    ranks: int
    device: str
    """What it was predicted for."""
    predicted: Figures
    measured: Figures
    off: Figures
    """Predicted over measured, less one."""


@dataclass(frozen=True)
class Trial:
    """A candidate that was run for a few steps."""

    layout: Layout
    predicted_s: float
    """Of a step."""
    measured_s: float | None
    """Median of its steps; None: it could not be tried."""
    generation: int
    why: str
    """Why it could not."""


@dataclass(frozen=True)
class JobPlan:
    """What the planner has to say of a job."""

    asked: Mapping[str, Any] | None
    """`layout.auto` of the spec that was submitted; None where it said the layout itself, and there is no report."""
    given: tuple[str, ...]
    """Fields that it had fixed."""
    planned_s: float | None
    """Unix seconds."""
    report: Mapping[str, Any] | None
    """The planner's answer: see `planner.explain.Report`."""
    trials: tuple[Trial, ...]
    """The journal of `refine: measure`, in the order in which they were run."""
    kept: Layout | None
    """What they came to; None as long as they go on, or where they were given up."""
    kept_why: str
    generations: tuple[Compared, ...]
    """Those of which something was predicted, oldest first."""
    why_not: str
    """Why nothing is predicted of its newest generation; empty if something is, or that has yet to come."""


async def compared(store: Store, job_id: str, generations: Sequence[Generation]) -> list[Compared]:
    """Those of these generations of which something was predicted."""
    known = await store.predictions.of_job(job_id)
    return [
        await _compared(store, job_id, generation, known[generation.number])
        for generation in generations
        if "step_s" in known.get(generation.number, {})
    ]


async def plan_of(store: Store, job: JobRow) -> JobPlan:
    """What was planned of a job, and what came of it."""
    plan, generations = await store.predictions.plan(job.id) or {}, await store.generations(job.id)
    found = await compared(store, job.id, generations)
    known = await store.predictions.of_job(job.id)
    told = [each.data for each in await store.predictions.trials(job.id)]
    end = next((each for each in told if "kept" in each), None)
    why_not = known.get(job.generation, {}).get("why_not") or _why_not(job)
    return JobPlan(
        asked=plan.get("asked"),
        given=tuple(plan.get("given", ())),
        planned_s=plan.get("planned_s"),
        report=plan.get("report"),
        trials=tuple(_trial(each) for each in told if "layout" in each),
        kept=Layout(**end["kept"]) if end and end["kept"] else None,
        kept_why=end["why"] if end else "",
        generations=tuple(found),
        why_not=why_not,
    )


async def _compared(store: Store, job_id: str, generation: Generation, data: Mapping[str, Any]) -> Compared:
    rows = await store.predictions.steps(job_id, generation.number, SHOWN_STEPS)
    foretold = Figures(**{name: data[name] for name in _FIGURES})
    found = measured(rows, generation.start_step)
    error = Figures(**{name: off(getattr(foretold, name), getattr(found, name)) for name in _FIGURES})
    return Compared(generation.number, data["ranks"], data["device"], foretold, found, error)


def _trial(data: Mapping[str, Any]) -> Trial:
    layout = Layout(**data["layout"])
    return Trial(layout, data["predicted_s"], data["measured_s"], data["generation"], data.get("why", ""))


def _why_not(job: JobRow) -> str:
    try:
        work_of(job.parsed_spec())
    except SpecError as error:
        return str(error.issues[0].message)
    return ""
