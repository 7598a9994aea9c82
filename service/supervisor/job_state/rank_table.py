"""Place and activity of each rank of the newest generation, from the reports of the agents.

A report may contain only the ranks that have changed. The others are where they were, and for longer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from regroup.workers.contract.activity_report import RankRecord, unpack
from regroup.workers.contract.messages import AgentReport
from regroup.workers.contract.rank_activity import RankActivity

_Entry = tuple[RankRecord, float, str]
"""Record of a rank, the time of its report by the clock of its node, and that node; no node: the rank has ended."""


class RankTable:
    """Reports of one generation at a time. A report of a newer generation removes those of earlier ones."""

    def __init__(self) -> None:
        self.generation = 0
        """The generation of the ranks."""
        self.first_visits_s: dict[int, dict[str, float]] = {}
        """Generation → phase → the longest first visit in it, in seconds; of all generations."""
        self.earlier_first_s: dict[str, float] = {}
        """Phase → the longest first visit in earlier generations, as the agents of this generation remember it."""
        self._entries: dict[int, _Entry] = {}
        self._ended: dict[int, tuple[int, str]] = {}
        """Rank that has ended → its last place."""
        self._clocks_s: dict[str, float] = {}
        """Node → time of its newest report by its clock."""
        self._bases: dict[str, str] = {}
        """Node → run of the agent that has sent a full report of this generation."""

    def receive(self, report: AgentReport) -> bool:
        """Record a report. Return False if it contains only changes, and this table lacks the reports before."""
        activity, node = report.activity, report.node_id
        if activity is None:
            return True
        self._record_first_visits(report.generation, activity.first_visits_s)
        if report.generation < self.generation:
            return True
        if report.generation > self.generation:
            self.generation = report.generation
            for rows in (self._entries, self._ended, self._clocks_s, self._bases, self.earlier_first_s):
                rows.clear()
        if not activity.is_full and self._bases.get(node) != report.boot_id:
            return False
        if activity.is_full:
            self._bases[node] = report.boot_id
        for record in unpack(activity.records):
            self._record(record, activity.clock_s, node)
        self._clocks_s[node] = activity.clock_s
        return True

    @property
    def activities(self) -> Mapping[int, RankActivity]:
        """Rank → its activity when its agent reported last. Of a rank that has ended: when it lived."""
        return _Activities(self._entries, self._clocks_s)

    def reports(self) -> dict[int, Sequence[object]]:
        """Return rank → step, phase and, if the rank has lived, seconds of a step in which it computes and waits for a
        processor, and since it moved on."""
        found: dict[int, Sequence[object]] = dict(self._ended)
        for rank, each in self.activities.items():
            place = self._ended.get(rank, (each.step, each.phase))
            found[rank] = (*place, round(each.work_s, 4), round(each.ready_s, 4), round(each.stalled_s, 1))
        return found

    def _record(self, record: RankRecord, clock_s: float, node: str) -> None:
        rank, activity = record.rank, record.activity
        if record.is_alive:
            self._entries[rank] = record, clock_s, node
            self._ended.pop(rank, None)
            if activity.earlier_first_s > self.earlier_first_s.get(activity.phase, 0.0):
                self.earlier_first_s[activity.phase] = activity.earlier_first_s
            return
        self._ended[rank] = activity.step, activity.phase
        if rank in self._entries:
            last = _standing(self._entries[rank], self._clocks_s)
            self._entries[rank] = replace(self._entries[rank][0], activity=last), clock_s, ""

    def _record_first_visits(self, generation: int, first_visits_s: Mapping[str, float]) -> None:
        longest = self.first_visits_s.setdefault(generation, {})
        for phase, first_s in first_visits_s.items():
            longest[phase] = max(first_s, longest.get(phase, 0.0))


class _Activities(Mapping[int, RankActivity]):
    def __init__(self, entries: Mapping[int, _Entry], clocks_s: Mapping[str, float]) -> None:
        self._entries, self._clocks_s = entries, clocks_s

    def __getitem__(self, rank: int) -> RankActivity:
        return _standing(self._entries[rank], self._clocks_s)

    def __contains__(self, rank: object) -> bool:
        return rank in self._entries

    def __iter__(self) -> Iterator[int]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _standing(entry: _Entry, clocks_s: Mapping[str, float]) -> RankActivity:
    """Return the activity of a rank at the newest report of its node."""
    record, clock_s, node = entry
    elapsed_s = clocks_s.get(node, clock_s) - clock_s
    if elapsed_s <= 0.0:
        return record.activity
    activity = record.activity
    return replace(activity, stalled_s=activity.stalled_s + elapsed_s, idle_s=activity.idle_s + elapsed_s)
