"""What is known of a job's sizes, for growing where there is room without being asked."""

from collections.abc import Sequence

from regroup.service.domain.states import Reason
from regroup.service.policy.elasticity import autosize
from regroup.service.policy.elasticity.autosize import TrainingProgress, choose_growth
from regroup.service.store.records import Incident, JobRow

_LOOK_S = 5.0
_SEEN_STEPS = 20
"""Committed steps at a size before its rate is believed: the first are slower, and the average has a memory."""


class Autosizer:
    """As far as this control plane has seen the job; one that comes anew sees it anew."""

    def __init__(self) -> None:
        self._rates: dict[int, float] = {}
        self._generation = self._from_step = 0
        self._size_since_s = self._looked_s = float("-inf")
        self._room_since_s: float | None = None

    def observe(self, job: JobRow, degree: int, now: float) -> None:
        """Take note of how fast it is."""
        self._begin(job, now)
        if job.step - self._from_step >= _SEEN_STEPS and job.step_duration_s:
            self._rates[degree] = 1 / job.step_duration_s

    def is_due(self, degree: int, now: float) -> bool:
        """Whether it is time to look for room."""
        if degree not in self._rates or now - self._looked_s < _LOOK_S:
            return False
        self._looked_s = now
        return True

    def is_due_to_return(self, job: JobRow, now: float) -> bool:
        """Whether it is time to look for room for the split of its spec."""
        self._begin(job, now)
        if now - self._looked_s < _LOOK_S:
            return False
        self._looked_s = now
        return True

    def may_return(self, *, is_room: bool, now: float) -> bool:
        """Whether there has been room for it for long enough. What it gains nobody has measured, but whoever wrote the
        spec wants it."""
        if not is_room:
            self._room_since_s = None
            return False
        if self._room_since_s is None:
            self._room_since_s = now
        return (
            now - self._size_since_s >= autosize.MIN_RESIZE_INTERVAL_S
            and now - self._room_since_s >= autosize.CAPACITY_SETTLED_S
        )

    def _begin(self, job: JobRow, now: float) -> None:
        if job.generation != self._generation:
            self._generation, self._from_step, self._size_since_s = job.generation, job.step, now

    def degree(
        self, job: JobRow, now_degree: int, ladder: Sequence[int], room: int, incidents: Sequence[Incident], now: float
    ) -> int | None:
        """The degree to grow to, now that there is room for `room`; None: it stays as it is."""
        if room <= now_degree:
            self._room_since_s = None
            return None
        if self._room_since_s is None:
            self._room_since_s = now
        prices = [
            total for each in incidents if each.data["reason"] == Reason.RESIZED
            if (total := each.data["durations"].get("total")) is not None
        ]  # fmt: skip
        left = None if job.steps is None else job.steps - job.step
        running = TrainingProgress(
            now_degree, self._rates, left, prices, now - self._size_since_s, now - self._room_since_s
        )
        return choose_growth(running, ladder, room)
