"""How long each rank of this node has been where it is, and whether it shows any other sign of life."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from regroup.workers.dwell import Dwell
from regroup.workers.node import processes
from regroup.workers.rank.progress import Progress

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
    progress: Progress
    logs: Sequence[Path] = ()
    """Files that its output goes to."""


@dataclass(frozen=True)
class _Sample:
    at_s: float
    computed_s: float
    written: int


class Dwelling:
    """Looks at the ranks of one generation, again and again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked_s = self._awake_s = clock()
        self._samples: dict[int, _Sample] = {}
        self._lively_s: dict[int, float] = {}
        """Rank → when it was last seen to compute or write."""

    def look(self, ranks: Sequence[Standing]) -> Mapping[int, Dwell]:
        """Rank → how long it has been where it is."""
        now_s = self._clock()
        if now_s - self._looked_s > _ASLEEP_S:
            self._awake_s = now_s
        self._looked_s = now_s
        return {standing.rank: self._dwell(standing, now_s) for standing in ranks}

    def _dwell(self, standing: Standing, now_s: float) -> Dwell:
        step, phase = standing.progress.read()
        visits, usual_s = standing.progress.usual()
        quiet_s = max(0.0, min(standing.progress.age_s(), now_s - self._awake_s))
        idle_s = min(quiet_s, self._idle_s(standing, quiet_s, now_s))
        return Dwell(step, phase, quiet_s, idle_s, visits, usual_s, *standing.progress.pace.read())

    def _idle_s(self, standing: Standing, quiet_s: float, now_s: float) -> float:
        rank = standing.rank
        if quiet_s < _MOVING_S or standing.pid is None:
            self._samples.pop(rank, None)
            self._lively_s.pop(rank, None)
            return quiet_s
        before = self._samples.get(rank)
        if before is None or now_s - before.at_s >= _SAMPLE_S:
            sample = _Sample(now_s, processes.computed_s(standing.pid), _written(standing.logs))
            self._samples[rank] = sample
            if before is None or _lives(before, sample):
                self._lively_s[rank] = now_s
        return now_s - self._lively_s[rank]


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
