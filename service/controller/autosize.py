"""The measurements by which a job grows without a request."""

from collections.abc import Sequence

from regroup.service.domain.states import Reason
from regroup.service.policy.elasticity import autosize
from regroup.service.policy.elasticity.autosize import TrainingProgress, choose_growth
from regroup.service.store.rows.records import Incident, JobRow

_MEASURED_STEPS = 20
"""Committed steps at a size before its rate counts: the first are slower, and the rate is a moving average."""


class Autosizer:
    """The rates of one job at its sizes, as this control plane measured them."""

    def __init__(self) -> None:
        self._rates: dict[int, float] = {}
        """Data-parallel degree → steps per second."""
        self._generation = self._from_step = 0
        self._size_since_s = self._searched_s = float("-inf")
        self._capacity_since_s: float | None = None

    def observe(self, job: JobRow, degree: int, now: float) -> None:
        """Record the job's rate at this degree."""
        self._observe_generation(job, now)
        if job.step - self._from_step >= _MEASURED_STEPS and job.step_duration_s:
            self._rates[degree] = 1 / job.step_duration_s

    def is_due(self, degree: int, now: float, every_s: float) -> bool:
        """Return whether to search for capacity now, at most once in `every_s` seconds."""
        return degree in self._rates and self._is_search_due(now, every_s)

    def is_return_due(self, job: JobRow, now: float, every_s: float) -> bool:
        """Return whether to search now for capacity for the split of the spec, at most once in `every_s` seconds."""
        self._observe_generation(job, now)
        return self._is_search_due(now, every_s)

    def may_return(self, *, has_capacity: bool, now: float) -> bool:
        """Return whether capacity for the split of the spec has been there for long enough.

        The gain is not measured: the author of the spec chose that split.
        """
        if not has_capacity:
            self._capacity_since_s = None
            return False
        if self._capacity_since_s is None:
            self._capacity_since_s = now
        return (
            now - self._size_since_s >= autosize.MIN_RESIZE_INTERVAL_S
            and now - self._capacity_since_s >= autosize.CAPACITY_SETTLED_S
        )

    def choose_degree(
        self,
        job: JobRow,
        current: int,
        ladder: Sequence[int],
        largest: int,
        incidents: Sequence[Incident],
        now: float,
    ) -> int | None:
        """Return the degree to grow to; None: keep the current one.

        Args:
            largest: Largest degree that there is capacity for.
        """
        if largest <= current:
            self._capacity_since_s = None
            return None
        if self._capacity_since_s is None:
            self._capacity_since_s = now
        resize_costs_s = [
            total
            for each in incidents
            if each.data["reason"] == Reason.RESIZED and (total := each.data["durations"].get("total")) is not None
        ]
        steps_left = None if job.steps is None else job.steps - job.step
        since_s, capacity_s = now - self._size_since_s, now - self._capacity_since_s
        return choose_growth(
            TrainingProgress(current, self._rates, steps_left, resize_costs_s, since_s, capacity_s), ladder, largest
        )

    def _is_search_due(self, now: float, every_s: float) -> bool:
        if now - self._searched_s < every_s:
            return False
        self._searched_s = now
        return True

    def _observe_generation(self, job: JobRow, now: float) -> None:
        if job.generation != self._generation:
            self._generation, self._from_step, self._size_since_s = job.generation, job.step, now
