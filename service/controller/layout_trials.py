"""A live job whose candidates are measured: it goes from one to the next as from one size to another, and stays at the
fastest. What is known of that is in its history, so that the next leader goes on with it."""

from collections.abc import Mapping
from typing import Any

from regroup.service.domain.layout import Layout
from regroup.service.domain.states import JobState
from regroup.service.planner.predictions import SHOWN_STEPS, WARM_UP, measured
from regroup.service.policy.elasticity.layout_trials import (
    TRIAL_STEPS,
    TRIAL_TIMEOUT_S,
    fastest_candidate,
    is_worth_trying,
    next_candidate,
)
from regroup.service.store.projects import RESIZE
from regroup.service.store.records import Event, JobRow, Lease
from regroup.service.store.store import Store


class LayoutTrialReconciler:
    """Of one job, between two words with its supervisor."""

    def __init__(self, lease: Lease, store: Store) -> None:
        self._lease, self._store = lease, store
        self._candidates: Mapping[Layout, float] | None = None
        """Layout → seconds of a step, as predicted; None: not read yet."""
        self._looked_at = (0, 0)
        self._is_over = False

    async def look(self, job: JobRow, now: float) -> None:
        """Bring it on.

        Raises:
            PreconditionError: another leads.
            UnavailableError: the database does not answer.
        """
        if self._candidates is None:
            plan = await self._store.predictions.plan(job.id) or {}
            self._candidates = {Layout(**each["layout"]): each["step_s"] for each in plan.get("candidates", ())}
            self._is_over = not self._candidates
        if self._is_over or job.state is not JobState.RUNNING or self._looked_at == (job.generation, job.step):
            return
        self._looked_at = (job.generation, job.step)
        told = await self._store.predictions.trials(job.id)
        if told and "kept" in told[-1].data:
            await self._come_back(job, told[-1], now)
        elif (wanted := job.intents.get(RESIZE)) is None:
            await self._go_on(job, told, now)
        elif not wanted.get("is_trial"):
            await self._give_up(job, told, "the job is to be of another size", now)
        elif now - wanted["asked_s"] > TRIAL_TIMEOUT_S:
            await self._want(job, None, "", now)
            why = f"it did not come about within {TRIAL_TIMEOUT_S:.0f} s"
            await self._note(job, told, Layout(**wanted["layout"]), {"measured_s": None, "why": why}, now)

    async def _go_on(self, job: JobRow, told: list[Event], now: float) -> None:
        assert self._candidates is not None and job.layout is not None, "it runs"
        here, seen = Layout(**job.layout), _seen(told)
        if here not in self._candidates:
            await self._give_up(job, told, "the job was given another size", now)
            return
        if here not in seen:
            start = next(each for each in await self._store.generations(job.id) if each.number == job.generation)
            rows = await self._store.predictions.steps(job.id, job.generation, SHOWN_STEPS)
            count = sum(row.step > start.start_step + WARM_UP for row in rows)
            if count < TRIAL_STEPS:
                return
            step_s = measured(rows, start.start_step).step_s
            await self._note(job, told, here, {"measured_s": step_s, "steps": count}, now)
            seen[here] = step_s
        order = list(self._candidates)
        target = next_candidate(order, seen)
        if target is None or target == here:
            why = "its steps took least" if len(order) > 1 else "its ranks can be split in no other legal way"
            await self._end(job, here, why, now)
        elif not is_worth_trying(None if job.steps is None else job.steps - job.step):
            await self._end(job, here, f"too few steps are left to go to {target}", now)
        else:
            number = len(seen) + 1
            why = "its steps took least" if target in seen else f"trial {number} of {len(order)} of the planner's best"
            await self._want(job, target, why, now)

    async def _come_back(self, job: JobRow, kept: Event, now: float) -> None:
        """A job that has queued since begins as its spec says, and goes to what was found before."""
        self._is_over = True
        found = kept.data["kept"]
        if job.queued_at > kept.time_s and found is not None and found != job.layout and RESIZE not in job.intents:
            await self._want(job, Layout(**found), "it was found to be faster before", now)

    async def _give_up(self, job: JobRow, told: list[Event], why: str, now: float) -> None:
        best = fastest_candidate(list(self._candidates or {}), _seen(told))
        await self._end(job, None, why if best is None else f"{why}; {best} was the fastest so far", now)

    async def _end(self, job: JobRow, kept: Layout | None, why: str, now: float) -> None:
        self._is_over = True
        data = {"kept": kept.to_json() if kept else None, "why": why}
        await self._store.predictions.note_trial(self._lease, job.id, data, now=now)

    async def _note(self, job: JobRow, told: list[Event], layout: Layout, found: Mapping[str, Any], now: float) -> None:
        assert self._candidates is not None, "they are read by then"
        data = {
            "number": len(_seen(told)) + 1, "of": len(self._candidates), "layout": layout.to_json(),
            "generation": job.generation, "predicted_s": self._candidates[layout], **found,
        }  # fmt: skip
        await self._store.predictions.note_trial(self._lease, job.id, data, now=now)

    async def _want(self, job: JobRow, layout: Layout | None, why: str, now: float) -> None:
        def wanted(row: JobRow) -> Mapping[str, Any]:
            if (there := row.intents.get(RESIZE)) and not there.get("is_trial"):
                return {}  # somebody else was first
            if layout is None:
                return {RESIZE: None}
            told = {"layout": layout.to_json(), "why": why, "asked_s": now, "is_asked": False, "is_trial": True}
            return {RESIZE: told}

        await self._store.intend(job.id, wanted, now=now, actor="controller")


def _seen(told: list[Event]) -> dict[Layout, float | None]:
    """Candidate → seconds of its steps; None: it could not be tried."""
    return {Layout(**each.data["layout"]): each.data["measured_s"] for each in told if "layout" in each.data}
