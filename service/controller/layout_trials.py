"""The trial of layouts: a live job is resized from one candidate to the next, and keeps the fastest. The results are in
the job's history, so the next leader continues the trial."""

from collections.abc import Mapping
from typing import Any

from regroup.service.controller.leader_context import LeaderContext
from regroup.service.controller.reconciler import Reconciler
from regroup.service.domain.author import CONTROLLER
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import JobState
from regroup.service.planner.predictions import SHOWN_STEPS, WARM_UP, measure_steps
from regroup.service.policy.elasticity.layout_trials import (
    TRIAL_STEPS,
    TRIAL_TIMEOUT_S,
    fastest_candidate,
    is_worth_trying,
    next_candidate,
)
from regroup.service.ports.sync import SupervisorStatus
from regroup.service.store.projects import RESIZE
from regroup.service.store.rows.records import Event, JobRow


class LayoutTrialReconciler(Reconciler):
    """Measures the candidate layouts of one job."""

    def __init__(self, leader: LeaderContext, *, has_plan: bool = True) -> None:
        """Initialize. A job without a plan has no candidates, so nothing is read."""
        self._store, self._lease = leader.store, leader.lease
        self._candidates: Mapping[Layout, float] | None = None if has_plan else {}
        """Layout → predicted seconds of a step; None: not read yet."""
        self._reconciled_at = (0, 0)
        """Generation and step."""
        self._is_over = not has_plan

    async def reconcile(self, job: JobRow, status: SupervisorStatus, now: float) -> None:
        """Record a trial that has enough steps, and request the next layout."""
        if self._candidates is None:
            plan = await self._store.predictions.plan(job.id) or {}
            self._candidates = {Layout(**each["layout"]): each["step_s"] for each in plan.get("candidates", ())}
            self._is_over = not self._candidates
        if self._is_over or job.state is not JobState.RUNNING or self._reconciled_at == (job.generation, job.step):
            return
        self._reconciled_at = (job.generation, job.step)
        trials = await self._store.predictions.trials(job.id)
        if trials and "kept" in trials[-1].data:
            await self._return_to_fastest(job, trials[-1], now)
        elif (request := job.intents.get(RESIZE)) is None:
            await self._continue(job, trials, now)
        elif not request.get("is_trial"):
            await self._abandon(job, trials, "another size was requested", now)
        elif now - request["requested_s"] > TRIAL_TIMEOUT_S:
            await self._request(job, None, "", now)
            why = f"the resize did not finish within {TRIAL_TIMEOUT_S:.0f} s"
            await self._record(job, trials, Layout(**request["layout"]), {"measured_s": None, "why": why}, now)

    async def _continue(self, job: JobRow, trials: list[Event], now: float) -> None:
        assert self._candidates is not None and job.layout is not None, "the job is running"
        current, results = Layout(**job.layout), _results(trials)
        if current not in self._candidates:
            await self._abandon(job, trials, "the job was resized to another layout", now)
            return
        if current not in results:
            generation = next(each for each in await self._store.generations(job.id) if each.number == job.generation)
            rows = await self._store.predictions.steps(job.id, job.generation, SHOWN_STEPS)
            count = sum(row.step > generation.start_step + WARM_UP for row in rows)
            if count < TRIAL_STEPS:
                return
            step_s = measure_steps(rows, generation.start_step).step_s
            await self._record(job, trials, current, {"measured_s": step_s, "steps": count}, now)
            results[current] = step_s
        order = list(self._candidates)
        target = next_candidate(order, results)
        if target is None or target == current:
            why = "its steps were the fastest" if len(order) > 1 else "there is no other legal layout"
            await self._end(job, current, why, now)
        elif not is_worth_trying(None if job.steps is None else job.steps - job.step):
            await self._end(job, current, f"too few steps are left to resize to {target}", now)
        else:
            number = len(results) + 1
            why = "its steps were the fastest" if target in results else f"layout trial {number} of {len(order)}"
            await self._request(job, target, why, now)

    async def _return_to_fastest(self, job: JobRow, last: Event, now: float) -> None:
        """Request the layout that an earlier trial found. A job that queued starts with that of its spec."""
        self._is_over = True
        kept = last.data["kept"]
        if job.queued_at > last.time_s and kept is not None and kept != job.layout and RESIZE not in job.intents:
            await self._request(job, Layout(**kept), "an earlier trial found it to be the fastest", now)

    async def _abandon(self, job: JobRow, trials: list[Event], why: str, now: float) -> None:
        best = fastest_candidate(list(self._candidates or {}), _results(trials))
        await self._end(job, None, why if best is None else f"{why}; {best} was the fastest so far", now)

    async def _end(self, job: JobRow, kept: Layout | None, why: str, now: float) -> None:
        self._is_over = True
        data = {"kept": kept.to_json() if kept else None, "why": why}
        await self._store.predictions.note_trial(self._lease, job.id, data, now=now)

    async def _record(
        self, job: JobRow, trials: list[Event], layout: Layout, result: Mapping[str, Any], now: float
    ) -> None:
        assert self._candidates is not None, "the candidates were read"
        data = {
            "number": len(_results(trials)) + 1, "of": len(self._candidates), "layout": layout.to_json(),
            "generation": job.generation, "predicted_s": self._candidates[layout], **result,
        }  # fmt: skip
        await self._store.predictions.note_trial(self._lease, job.id, data, now=now)

    async def _request(self, job: JobRow, layout: Layout | None, why: str, now: float) -> None:
        def intent(row: JobRow) -> Mapping[str, Any]:
            if (there := row.intents.get(RESIZE)) and not there.get("is_trial"):
                return {}  # another request was first
            if layout is None:
                return {RESIZE: None}
            request = {
                "layout": layout.to_json(),
                "why": why,
                "requested_s": now,
                "is_requested": False,
                "is_trial": True,
            }
            return {RESIZE: request}

        await self._store.intend(job.id, intent, now=now, author=CONTROLLER, action="jobs.resize")


def _results(trials: list[Event]) -> dict[Layout, float | None]:
    """Return candidate → measured seconds of a step; None: the candidate could not be tried."""
    return {Layout(**each.data["layout"]): each.data["measured_s"] for each in trials if "layout" in each.data}
