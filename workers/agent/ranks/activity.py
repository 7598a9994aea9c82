"""Activity of the ranks of a node: time since the last progress, and since the last sign of work."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from regroup.workers.contract.progress_page import ProgressPage
from regroup.workers.contract.rank_activity import RankActivity
from regroup.workers.os import procfs

_SUSPENDED_S = 5.0
"""Pause between two polls after which this node counts as suspended, and its ranks with it. Polls come every second."""
_PROGRESS_S = 2.0
"""Time since the last progress below which CPU time and output of a rank are not measured."""
_SAMPLE_INTERVAL_S = 0.5
_BUSY_SHARE = 0.1
"""Share of a core above which a rank counts as computing."""


@dataclass(frozen=True)
class RunningRank:
    """A live rank, from the agent's side."""

    rank: int
    pid: int | None
    progress: ProgressPage
    logs: Sequence[Path] = ()
    """Files of its output."""


@dataclass(frozen=True)
class _Sample:
    time_s: float
    cpu_s: float
    output_bytes: int


class ActivityMonitor:
    """Polls the ranks of one generation."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._polled_s = self._awake_s = clock()
        self._samples: dict[int, _Sample] = {}
        self._active_s: dict[int, float] = {}
        """Rank → time at which it last computed or wrote output."""

    def poll(self, ranks: Sequence[RunningRank]) -> Mapping[int, RankActivity]:
        """Return rank → its activity."""
        now_s = self._clock()
        if now_s - self._polled_s > _SUSPENDED_S:
            self._awake_s = now_s
        self._polled_s = now_s
        stalled_s = {each.rank: max(0.0, min(each.progress.age_s(), now_s - self._awake_s)) for each in ranks}
        self._sample([each for each in ranks if stalled_s[each.rank] >= _PROGRESS_S], now_s)
        return {each.rank: self._activity(each, stalled_s[each.rank], now_s) for each in ranks}

    def _activity(self, each: RunningRank, stalled_s: float, now_s: float) -> RankActivity:
        step, phase = each.progress.read()
        visits, usual_s = each.progress.usual()
        idle_s = min(stalled_s, now_s - self._active_s.get(each.rank, self._awake_s))
        return RankActivity(step, phase, stalled_s, idle_s, visits, usual_s, *each.progress.pace.read())

    def _sample(self, stalled: Sequence[RunningRank], now_s: float) -> None:
        """Measure the CPU time and output of ranks without recent progress. Drop the samples of all others."""
        pids = {each.rank: each.pid for each in stalled if each.pid is not None}
        self._samples = {rank: sample for rank, sample in self._samples.items() if rank in pids}
        self._active_s = {rank: time_s for rank, time_s in self._active_s.items() if rank in pids}
        before = self._samples
        due = [rank for rank in pids if rank not in before or now_s - before[rank].time_s >= _SAMPLE_INTERVAL_S]
        cpu_s = procfs.computed_s([pids[rank] for rank in due]) if due else {}
        logs = {each.rank: each.logs for each in stalled}
        for rank in due:
            sample = _Sample(now_s, cpu_s[pids[rank]], _output_bytes(logs[rank]))
            if rank not in before or _is_active(before[rank], sample):
                self._active_s[rank] = now_s
            self._samples[rank] = sample


def _is_active(before: _Sample, now: _Sample) -> bool:
    share = (now.cpu_s - before.cpu_s) / (now.time_s - before.time_s)
    return share > _BUSY_SHARE or now.output_bytes != before.output_bytes


def _output_bytes(logs: Sequence[Path]) -> int:
    total = 0
    for path in logs:
        try:
            total += path.stat().st_size
        except OSError:
            continue  # the rank has not opened it yet
    return total
