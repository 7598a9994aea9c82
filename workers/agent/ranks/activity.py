"""How long each rank of this node has been where it is, and whether it shows any other sign of life."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from regroup.workers.contract.progress_page import ProgressPage
from regroup.workers.contract.rank_activity import RankActivity
from regroup.workers.os import procfs

_ASLEEP_S = 5.0
"""Looks come every second. After a longer pause this node itself was stopped or starved, and so were its ranks."""
_MOVING_S = 2.0
"""A rank that moved on so lately needs no closer look."""
_SAMPLE_S = 0.5
_COMPUTES = 0.1  # of a core


@dataclass(frozen=True)
class Standing:
    """A rank that is alive, as its agent knows it."""

    rank: int
    pid: int | None
    progress: ProgressPage
    logs: Sequence[Path] = ()
    """Files that its output goes to."""


@dataclass(frozen=True)
class _Sample:
    at_s: float
    computed_s: float
    written: int


class ActivityMonitor:
    """Looks at the ranks of one generation, again and again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked_s = self._awake_s = clock()
        self._samples: dict[int, _Sample] = {}
        self._lively_s: dict[int, float] = {}
        """Rank → when it was last seen to compute or write."""

    def look(self, ranks: Sequence[Standing]) -> Mapping[int, RankActivity]:
        """Rank → how long it has been where it is."""
        now_s = self._clock()
        if now_s - self._looked_s > _ASLEEP_S:
            self._awake_s = now_s
        self._looked_s = now_s
        quiet = {each.rank: max(0.0, min(each.progress.age_s(), now_s - self._awake_s)) for each in ranks}
        self._sample([each for each in ranks if quiet[each.rank] >= _MOVING_S], now_s)
        return {each.rank: self._dwell(each, quiet[each.rank], now_s) for each in ranks}

    def _dwell(self, standing: Standing, quiet_s: float, now_s: float) -> RankActivity:
        step, phase = standing.progress.read()
        visits, usual_s = standing.progress.usual()
        idle_s = min(quiet_s, now_s - self._lively_s.get(standing.rank, self._awake_s))
        return RankActivity(step, phase, quiet_s, idle_s, visits, usual_s, *standing.progress.pace.read())

    def _sample(self, standing: Sequence[Standing], now_s: float) -> None:
        """What those have done who have not moved on for a while; nothing is kept of others."""
        pids = {each.rank: each.pid for each in standing if each.pid is not None}
        self._samples = {rank: sample for rank, sample in self._samples.items() if rank in pids}
        self._lively_s = {rank: at_s for rank, at_s in self._lively_s.items() if rank in pids}
        before = self._samples
        due = [rank for rank in pids if rank not in before or now_s - before[rank].at_s >= _SAMPLE_S]
        computed_s = procfs.computed_s([pids[rank] for rank in due]) if due else {}
        logs = {each.rank: each.logs for each in standing}
        for rank in due:
            sample = _Sample(now_s, computed_s[pids[rank]], _written(logs[rank]))
            if rank not in before or _lives(before[rank], sample):
                self._lively_s[rank] = now_s
            self._samples[rank] = sample


def _lives(before: _Sample, now: _Sample) -> bool:
    share = (now.computed_s - before.computed_s) / (now.at_s - before.at_s)
    return share > _COMPUTES or now.written != before.written


def _written(logs: Sequence[Path]) -> int:
    total = 0
    for path in logs:
        try:
            total += path.stat().st_size
        except OSError:
            continue  # it has not opened it yet
    return total
