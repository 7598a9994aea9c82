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
from regroup.workers.contract.messages import AgentReport, RankActivity

_STACK_CHARACTERS = 4_000
_STACKS_CHARACTERS = 24_000
"""Most characters of evidence for all ranks, outliers first. The database keeps an incident, and the job shows it."""


class HangDetector:
    """Tracks the time that each rank has spent at its place in the running generation."""

    def __init__(self, gang: Gang, policy: HangPolicy | None) -> None:
        """Initialize the detector. `policy` None disables it."""
        self._gang, self._policy = gang, policy
        self._activity: dict[int, dict[int, RankActivity]] = {}
        """Generation → rank → its newest activity."""
        self._first_times: dict[int, dict[str, float]] = {}
        """Generation → phase → the longest first time in it, in seconds."""

    def receive_report(self, report: AgentReport) -> None:
        """Record the rank activity in a report."""
        self._activity = {
            generation: seen for generation, seen in self._activity.items() if generation >= report.generation
        }
        seen = self._activity.setdefault(report.generation, {})
        seen |= {int(rank): activity for rank, activity in report.activities.items()}
        firsts = self._first_times.setdefault(report.generation, {})
        for phase, first_s in report.first_visits_s.items():
            firsts[phase] = max(first_s, firsts.get(phase, 0.0))

    def activity(self, generation: int) -> Mapping[int, RankActivity]:
        """Return the newest activity of each rank of a generation."""
        return self._activity.get(generation, {})

    def times(self, generation: int) -> dict[str, tuple[float, float, float]]:
        """Return rank → seconds of a step in which it computes and waits for a processor, and since it moved on."""
        return {
            str(rank): (round(each.work_s, 4), round(each.ready_s, 4), round(each.stalled_s, 1))
            for rank, each in self.activity(generation).items()
        }

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
        activities = self._activity[number]
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
        if self._policy is None or number not in self._activity:
            return None
        ranks = {place.rank for place in monitor.generation.ranks} - set(monitor.done)
        earlier: dict[str, float] = {}
        for generation, firsts in self._first_times.items():
            if generation < number:
                earlier |= {phase: max(first_s, earlier.get(phase, 0.0)) for phase, first_s in firsts.items()}
        for activity in self._activity[number].values():  # agents still have it after this supervisor has restarted
            if activity.earlier_first_s:
                earlier[activity.phase] = max(activity.earlier_first_s, earlier.get(activity.phase, 0.0))
        return find_hang(self._activity[number], ranks, self._policy, earlier)


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
