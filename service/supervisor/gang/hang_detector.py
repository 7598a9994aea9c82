"""Detection of hangs from rank activity, and collection of evidence before any rank is killed."""

import time
from collections.abc import Mapping
from typing import Any

from regroup.service.domain.states import Reason
from regroup.service.policy.detection.desync import (
    describe_newest,
    entered_collectives,
    find_desync,
    find_missing_ranks,
)
from regroup.service.policy.detection.hang import Hang, HangPolicy, describe_hang, find_hang, find_outlier_ranks
from regroup.service.policy.recovery.classify import Cause
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.gang.rank_inspection import inspect_ranks
from regroup.service.supervisor.job_state.generation_monitor import GenerationMonitor
from regroup.service.supervisor.job_state.rank_table import RankTable
from regroup.workers.contract.rank_activity import RankActivity

_STACK_CHARACTERS = 4_000
_STACKS_CHARACTERS = 24_000
"""Most characters of evidence for all ranks, outliers first. The database keeps an incident, and the job shows it."""


class HangDetector:
    """Tracks the time that each rank has spent at its place in the running generation."""

    def __init__(self, gang: Gang, policy: HangPolicy | None) -> None:
        """Initialize the detector. `policy` None disables it."""
        self._gang, self._policy = gang, policy
        self.table = RankTable()
        """The newest activity of each rank."""

    def activity(self, generation: int) -> Mapping[int, RankActivity]:
        """Return the newest activity of each rank of a generation; empty for another one than the newest."""
        return self.table.activities if generation == self.table.generation else {}

    async def poll(self, monitor: GenerationMonitor) -> Cause | None:
        """Return the hang of this generation with its evidence, or None if there is none or training resumed."""
        if self._find(monitor) is None:
            return None
        places = await inspect_ranks(self._gang)
        hang = self._find(monitor)  # the inspection takes time
        if hang is None or monitor.is_broken:
            return None
        monitor.places = places
        number = monitor.generation.number
        activities = self.activity(number)
        stacks = {rank: place["text"] for rank, place in places.items()}
        entered = entered_collectives(places)
        desync, awaited = find_desync(entered), find_missing_ranks(entered)
        outliers = find_outlier_ranks(activities, stacks, monitor.done, awaited.ranks if awaited else ())
        summary = describe_hang(hang, activities, outliers, stacks)
        if desync is not None:
            outliers, summary = desync.outliers, f"{desync.summary}; no rank made progress for {hang.stalled_s:.0f} s"
        elif awaited is not None:
            summary = f"{summary}; {awaited.summary}"
        rank = outliers[0] if len(outliers) == 1 else None
        return Cause(
            Reason.HANG if desync is None else Reason.DESYNC,
            summary,
            time.time() - hang.stalled_s,
            rank,
            None if rank is None else next(each.node_id for each in monitor.generation.ranks if each.rank == rank),
            evidence=_evidence(hang, activities, outliers, places),
        )

    def _find(self, monitor: GenerationMonitor) -> Hang | None:
        number = monitor.generation.number
        if self._policy is None or number != self.table.generation:
            return None
        ranks = (rank for rank in monitor.generation.ranks.numbers if rank not in monitor.done)
        earlier = dict(self.table.earlier_first_s)  # agents still have it after this supervisor has restarted
        for generation, firsts in self.table.first_visits_s.items():
            if generation < number:
                earlier |= {phase: max(first_s, earlier.get(phase, 0.0)) for phase, first_s in firsts.items()}
        return find_hang(self.activity(number), ranks, self._policy, earlier)


def _evidence(
    hang: Hang, activities: Mapping[int, RankActivity], outliers: tuple[int, ...], places: Mapping[int, Any]
) -> dict[str, Any]:
    left, ranks = _STACKS_CHARACTERS, dict[str, Any]()
    for rank in [*outliers, *(rank for rank in sorted(activities) if rank not in outliers)]:
        activity, place = activities[rank], places.get(rank, {})
        text = str(place.get("text", ""))
        stack = text[max(0, len(text) - min(left, _STACK_CHARACTERS)) :]  # the main thread comes last
        left -= len(stack)
        ranks[str(rank)] = {
            "node": place.get("node", ""),
            "pid": place.get("pid"),
            "step": activity.step,
            "phase": activity.phase,
            "stalled_s": round(activity.stalled_s, 3),
            "collective": describe_newest(place.get("collectives")),
            "stack": stack,
        }
    return {
        "kind": "hang",
        "phase": hang.phase,
        "stalled_s": round(hang.stalled_s, 3),
        "bound_s": round(hang.bound_s, 3),
        "outlier_ranks": list(outliers),
        "ranks": ranks,
    }
