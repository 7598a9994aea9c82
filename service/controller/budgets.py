"""Budgets of jobs and projects: a running job is suspended in time, and none starts while a budget is used up."""

import contextlib
from collections.abc import Sequence

import structlog

from regroup.service.cluster_state.allocations import JobAllocations
from regroup.service.cluster_state.budgets import READING_BOUNDS_S, NamedUse
from regroup.service.cluster_state.job_account import JobAccount
from regroup.service.controller.leader_context import LeaderContext
from regroup.service.controller.reconciler import Reconciler
from regroup.service.domain.author import CONTROLLER
from regroup.service.domain.errors import ConflictError
from regroup.service.policy.usage.budget import next_reading_s
from regroup.service.ports.sync import SupervisorStatus
from regroup.service.spec.workload import ProgramWorkload
from regroup.service.store.projects import is_suspended_for_budget, must_release_all
from regroup.service.store.rows.records import WITHIN_BUDGET, JobRow

_RELEASE_S = 5.0
"""Time that a job needs to stop, apart from the time to save its state."""
_RESUME_EVERY_S = 2.0
_ENDINGS = frozenset({"cancel", "release"})
"""Intents of a job that ends, or releases its devices, anyway."""
_log = structlog.get_logger(__name__)


class BudgetReconciler(Reconciler):
    """Suspends one job before a budget is used up, so that its use ends within 1 % of the budget."""

    def __init__(self, leader: LeaderContext, account: JobAccount) -> None:
        self._leader, self._account = leader, account
        self._next_s = 0.0
        """Time of the next reading."""
        self._is_close = True
        """True if the job must stop before a long poll of its supervisor could end, or if its use is not read yet."""

    def concerns(self, job: JobRow, allocations: JobAllocations) -> bool:
        """Return whether the job must stop soon."""
        return self._is_close and self._leader.budgets.limits(job) and not must_release_all(job)

    async def reconcile(self, job: JobRow, status: SupervisorStatus, now: float) -> None:
        """Read the use of the job's budgets when it is due, and stop the job in time."""
        is_ending = must_release_all(job) or bool(_ENDINGS & job.intents.keys()) or not job.state.has_allocations
        is_early = now < self._next_s <= now + READING_BOUNDS_S[1]  # the clock may have been set back
        if is_ending or is_early:
            return
        await self._leader.budgets.read_projects(now)
        if not self._leader.budgets.limits(job):
            return
        uses, stop_s = await self._leader.budgets.uses_of(job, now), self._expected_stop_s(job)
        self._next_s = now + next_reading_s([each.use for each in uses], stop_s, READING_BOUNDS_S)
        left_s = {each: each.use.due_in_s(stop_s) for each in uses}
        self._is_close = any(seconds <= 2 * self._leader.settings.sync_wait_s for seconds in left_s.values())
        if due := next((each for each, seconds in left_s.items() if seconds <= 0), None):
            await self._stop(job, due, now)

    def _expected_stop_s(self, job: JobRow) -> float:
        """Return the expected time from the request until the devices are released.

        The job finishes a step that its ranks agree on, and saves its state. A program gets SIGTERM and saves itself.
        """
        spec, saves_s = job.parsed_spec(), self._account.checkpoint_seconds
        if isinstance(spec.workload, ProgramWorkload):
            return _RELEASE_S + spec.termination_grace
        return _RELEASE_S + 2 * (job.step_duration_s or 0.0) + (saves_s[-1] if saves_s else 0.0)

    async def _stop(self, job: JobRow, named: NamedUse, now: float) -> None:
        store = self._leader.store
        with contextlib.suppress(ConflictError):  # the job has ended, or is ending
            if job.is_held:  # the checkpoints before the failure have the state
                await store.release(job.id, now=now, author=CONTROLLER)
            else:
                await store.queue.suspend(
                    job.id, named.message, now=now, author=CONTROLLER, lease=self._leader.lease, for_budget=True
                )
            _log.info("stopped a job at its budget", job=job.id, why=named.message)


async def within_budgets(leader: LeaderContext, queue: Sequence[JobRow]) -> list[JobRow]:
    """Return the queued jobs that no budget keeps from starting. The others show their budgets."""
    await leader.budgets.read_projects(leader.clock())
    return [job for job in queue if not leader.budgets.limits(job) or not await _is_over_budget(leader, job)]


async def _is_over_budget(leader: LeaderContext, job: JobRow) -> bool:
    """Return whether a job waits for a budget, and show it. A job whose budget cannot be read waits, too."""
    async with leader.faults.isolate(job.id, "to check its budget"):
        if (named := await leader.budgets.used_up(job, leader.clock())) is None:
            return False
        await leader.set_conditions(job, (named.condition,))
        return True
    return True  # after a fault


class BudgetResumption:
    """Resumes the jobs that the server suspended at a budget, when their budgets allow it."""

    def __init__(self) -> None:
        self._checked_s: float | None = None

    async def resume_jobs(self, leader: LeaderContext) -> None:
        """Resume these jobs, every two seconds. The others show why they are suspended."""
        now = leader.clock()
        if self._checked_s is not None and 0 <= now - self._checked_s < _RESUME_EVERY_S:
            return
        self._checked_s = now
        for job in await leader.store.queue.suspended():
            if is_suspended_for_budget(job) and not job.damaged:
                async with leader.faults.isolate(job.id, "to resume it within its budget"):
                    await self._resume(leader, job, now)

    async def _resume(self, leader: LeaderContext, job: JobRow, now: float) -> None:
        if (named := await leader.budgets.used_up(job, now)) is not None:
            await leader.set_condition(job.id, WITHIN_BUDGET, named.condition, now)
            return
        with contextlib.suppress(ConflictError):  # the job was cancelled
            await leader.store.queue.resume(job.id, now=now, author=CONTROLLER, lease=leader.lease)
