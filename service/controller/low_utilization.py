"""Jobs that make little use of their devices: a condition reports them, and the operator may have them suspended."""

import contextlib
from collections.abc import Mapping

import structlog

from regroup.service.controller.leader_context import LeaderContext
from regroup.service.controller.reconciler import Reconciler
from regroup.service.domain.author import CONTROLLER
from regroup.service.domain.errors import ConflictError
from regroup.service.domain.states import JobState
from regroup.service.policy.detection.low_utilization import (
    LowUtilizationPolicy,
    Utilization,
    UtilizationSample,
    assess_utilization,
    recent_samples,
)
from regroup.service.ports.sync import SupervisorStatus
from regroup.service.settings import Settings
from regroup.service.store.projects import must_release_all
from regroup.service.store.rows.records import WELL_USED, Condition, JobRow

_SAMPLES = 30
"""Samples in the time over which the use is measured."""
_log = structlog.get_logger(__name__)


def low_use_rule(settings: Settings) -> LowUtilizationPolicy:
    """Return the rule of this control plane."""
    return LowUtilizationPolicy(
        settings.low_utilization_threshold, settings.low_utilization_window_s, settings.low_utilization_suspend_s
    )


class LowUtilizationReconciler(Reconciler):
    """Measures the use of one job since it has its size. Another control plane starts to measure again."""

    def __init__(self, leader: LeaderContext) -> None:
        self._leader, self._rule = leader, low_use_rule(leader.settings)
        self._samples: tuple[UtilizationSample, ...] = ()
        self._usual_s: float | None = None
        """The shortest step at this size."""
        self._generation = 0
        self._layout: Mapping[str, int] | None = None

    async def reconcile(self, job: JobRow, status: SupervisorStatus, now: float) -> None:
        """Take a sample, if one is due, and act on the use since."""
        if job.state is not JobState.RUNNING or must_release_all(job):
            self._samples = ()
            return
        self._observe(job)
        if self._samples and now - self._samples[-1].at_s < self._rule.after_s / _SAMPLES:
            return
        self._samples = recent_samples(
            (*self._samples, UtilizationSample(now, job.step, job.step_duration_s, job.mfu)), self._rule
        )
        condition = next((each for each in job.conditions if each.type == WELL_USED), None)
        use = assess_utilization(
            self._samples, self._rule, condition.last_transition_time if condition else None, self._usual_s
        )
        if use is None:
            return
        share = f"{use.share:.1%} of the capacity of its devices, over {self._rule.after_s / 60:.0f} min"
        if (use.low_since_s is not None) != (condition is not None):
            await self._report(job, use, f"the job uses {share}", now)
        if use.suspend and job.parsed_spec().effective_preemptibility == "full":
            await self._suspend(job, f"the job used {share}, for too long", now)

    def _observe(self, job: JobRow) -> None:
        """Begin to measure again with a new generation; forget the shortest step with a new layout."""
        if job.generation != self._generation:
            self._generation, self._samples = job.generation, ()
        if job.layout != self._layout:
            self._layout, self._usual_s = job.layout, None
        if job.step_duration_s:
            self._usual_s = min(job.step_duration_s, self._usual_s or job.step_duration_s)

    async def _report(self, job: JobRow, use: Utilization, message: str, now: float) -> None:
        is_low = use.low_since_s is not None
        condition = Condition(WELL_USED, False, "low_utilization", message) if is_low else None
        await self._leader.set_condition(job.id, WELL_USED, condition, now)
        data = {"low": is_low, "share": use.share, "below": self._rule.below, "after_s": self._rule.after_s}
        await self._leader.store.note(job.id, "low_utilization", data, now=now, author=CONTROLLER)
        _log.info("device utilization of a job changed", job=job.id, **data)

    async def _suspend(self, job: JobRow, why: str, now: float) -> None:
        with contextlib.suppress(ConflictError):  # the job has ended
            await self._leader.store.queue.suspend(job.id, why, now=now, author=CONTROLLER, lease=self._leader.lease)
            _log.info("suspended a job with low device utilization", job=job.id, why=why)
