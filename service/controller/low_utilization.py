"""Says of a job that it makes little use of its devices, and has it suspended where the operator wants that."""

import contextlib
from collections.abc import Mapping

import structlog

from regroup.service.domain.errors import ConflictError
from regroup.service.domain.states import JobState
from regroup.service.policy.detection.low_utilization import (
    LowUtilizationPolicy,
    Utilization,
    UtilizationSample,
    assess_utilization,
    recent_samples,
)
from regroup.service.settings import Settings
from regroup.service.store.projects import gives_all_up
from regroup.service.store.records import WELL_USED, Condition, JobRow, Lease
from regroup.service.store.store import Store

_LOOKS = 30
"""In the time over which it is measured."""
_log = structlog.get_logger(__name__)


def low_use_rule(settings: Settings) -> LowUtilizationPolicy:
    """How this control plane judges it."""
    return LowUtilizationPolicy(
        settings.low_utilization_threshold, settings.low_utilization_window_s, settings.low_utilization_suspend_s
    )


class LowUtilizationReconciler:
    """What was seen of one job since it has its size. A control plane that comes anew sees it anew; what was said of
    the job stands on its row."""

    def __init__(self, lease: Lease, store: Store, rule: LowUtilizationPolicy) -> None:
        self._lease, self._store, self._rule = lease, store, rule
        self._looks: tuple[UtilizationSample, ...] = ()
        self._usual_s: float | None = None
        self._generation = 0
        self._layout: Mapping[str, int] | None = None

    async def look(self, job: JobRow, now: float) -> None:
        """Look at the job, if that is due.

        Raises:
            UnavailableError: the database does not answer.
        """
        if job.state is not JobState.RUNNING or gives_all_up(job):
            self._looks = ()
            return
        self._observe(job)
        if self._looks and now - self._looks[-1].at_s < self._rule.after_s / _LOOKS:
            return
        self._looks = recent_samples(
            (*self._looks, UtilizationSample(now, job.step, job.step_duration_s, job.mfu)), self._rule
        )
        said = next((condition for condition in job.conditions if condition.type == WELL_USED), None)
        use = assess_utilization(self._looks, self._rule, said.last_transition_time if said else None, self._usual_s)
        if use is None:
            return
        what = f"{use.share:.1%} of what its devices could do, over {self._rule.after_s / 60:.0f} min"
        if (use.low_since_s is not None) != (said is not None):
            await self._say(job, use, f"it makes use of {what}", now)
        if use.suspend and job.parsed_spec().effective_preemptibility == "full":
            await self._suspend(job, f"it made use of {what}, and that for long", now)

    def _observe(self, job: JobRow) -> None:
        """Another generation is another measurement; a step's least time is that of a size."""
        if job.generation != self._generation:
            self._generation, self._looks = job.generation, ()
        if job.layout != self._layout:
            self._layout, self._usual_s = job.layout, None
        if job.step_duration_s:
            self._usual_s = min(job.step_duration_s, self._usual_s or job.step_duration_s)

    async def _say(self, job: JobRow, use: Utilization, message: str, now: float) -> None:
        is_low = use.low_since_s is not None
        job = await self._store.job(job.id)  # others have said something since it was read
        others = tuple(condition for condition in job.conditions if condition.type != WELL_USED)
        told = (Condition(WELL_USED, False, "low_use", message),) if is_low else ()
        await self._store.set_conditions(self._lease, job.id, (*others, *told), now=now)
        data = {"low": is_low, "share": use.share, "below": self._rule.below, "after_s": self._rule.after_s}
        await self._store.note(job.id, "low_use", data, now=now, actor="controller")
        _log.info("what a job makes of its devices", job=job.id, **data)

    async def _suspend(self, job: JobRow, why: str, now: float) -> None:
        with contextlib.suppress(ConflictError):  # it has come to its end meanwhile
            await self._store.queue.suspend(job.id, why, now=now, actor="controller", lease=self._lease)
            _log.info("a job that makes little use of its devices is suspended", job=job.id, why=why)
