"""Chooses which ranks an agent's next report contains: all of them, or those that have changed since the last one."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from regroup.workers.contract.activity_report import ActivityReport, RankRecord, pack
from regroup.workers.contract.rank_activity import RankActivity

_TOLERANCE_S = 0.5
"""Deviation of the time that a rank stands or idles, from which the rank counts as changed."""
_Shape = tuple[int, tuple[int, ...]]
"""A generation, and the ranks of it that are alive."""
_Reported = dict[int, tuple[float, RankRecord]]
"""Rank → time of its newest record that was sent, and that record."""


class ActivityReports:
    """The activity of one node's ranks, as its supervisor knows it.

    A report is full after a start of either side, after a report that may have been lost, in a new generation, and when
    a rank has started or ended.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Initialize without a supervisor: the first report is full."""
        self._clock = clock
        self._supervisor = ""
        self._reported: _Reported | None = None
        self._shape: _Shape = (0, ())
        self._sent: tuple[_Reported, _Shape] = ({}, (0, ()))

    def next_report(
        self,
        generation: int,
        places: Mapping[int, tuple[int, str]],
        activities: Mapping[int, RankActivity],
        first_visits_s: Mapping[str, float],
    ) -> ActivityReport:
        """Return the report about the ranks.

        Args:
            generation: the generation of the ranks.
            places: rank → step and phase, also of dead ranks.
            activities: rank → its activity, of live ranks.
            first_visits_s: phase → longest first visit, in seconds.
        """
        now_s, shape = self._clock(), (generation, tuple(sorted(activities)))
        reported = self._reported if shape == self._shape else None
        records = [
            RankRecord(rank, rank in activities, activities.get(rank) or RankActivity(*place, 0.0, 0.0, 0, 0.0))
            for rank, place in places.items()
        ]
        changed = [
            record for record in records if reported is None or _has_changed(reported.get(record.rank), record, now_s)
        ]
        self._sent = {**(reported or {}), **{record.rank: (now_s, record) for record in changed}}, shape
        return ActivityReport(reported is None, now_s, pack(changed), dict(first_visits_s))

    def confirm(self, supervisor: str) -> None:
        """Record that the run `supervisor` of the supervisor has received the last report."""
        if self._supervisor in ("", supervisor):
            self._reported, self._shape = self._sent
        else:
            self._reported = None  # the report was based on what another run knew
        self._supervisor = supervisor

    def reset(self) -> None:
        """Make the next report full."""
        self._reported = None

    @property
    def is_full_next(self) -> bool:
        """True if the next report will be full."""
        return self._reported is None


def _has_changed(before: tuple[float, RankRecord] | None, now: RankRecord, now_s: float) -> bool:
    """Return whether a supervisor that adds the elapsed time to the record before has a wrong one."""
    if before is None or before[1].is_alive != now.is_alive:
        return True
    elapsed_s, old, new = now_s - before[0], before[1].activity, now.activity
    if now.is_alive and (
        abs(new.stalled_s - old.stalled_s - elapsed_s) > _TOLERANCE_S
        or abs(new.idle_s - old.idle_s - elapsed_s) > _TOLERANCE_S
    ):
        return True
    return replace(old, stalled_s=new.stalled_s, idle_s=new.idle_s) != new
