"""Detect ranks that delay the others: ranks that work longer per step, or that wait for a processor. Pure."""

import bisect
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from regroup.workers.contract.rank_activity import RankActivity

_MEASURED = 10
"""Number of steps that every rank must have completed in this generation: the first ones compile and connect."""
_FACTOR, _STILL = 1.5, 1.25
"""Factor above the others' work at which a rank becomes a straggler, and at which it remains one. The difference avoids
oscillation."""
_FLOOR_S = 0.02
"""Smallest difference per step that is reported."""
_CROWDED_S = 30.0
"""Time for which a node must be crowded before it is reported: starting processes crowd a node for a while."""


@dataclass(frozen=True)
class Straggler:
    """One straggling rank."""

    rank: int
    work_s: float
    """CPU time per step; on a crowded node including the time waiting for a processor."""
    usual_s: float
    """Median of the other ranks."""
    is_crowded: bool = False
    """True if the rank works no longer than the others but waits for a processor that another process uses."""


def find_stragglers(
    activities: Mapping[int, RankActivity], ranks: Collection[int], named: Collection[int], stages: int = 1
) -> tuple[Straggler, ...] | None:
    """Return the current stragglers; None while too few steps were measured.

    In a synchronous step all ranks take the same wall-clock time. Their time without waiting shows which rank the
    others wait for.

    Args:
        ranks: all ranks of the generation.
        named: ranks that were stragglers before.
        stages: number of pipeline stages. Only ranks of one stage have the same work.
    """
    ordered, size = sorted(ranks), len(ranks) // stages
    groups = [ordered[begin : begin + size] for begin in range(0, len(ordered), size)] if size else []
    if not groups or any(len(group) < 2 for group in groups):
        return None
    found: list[Straggler] = []
    for group in groups:
        measured = [activities[rank] for rank in group if rank in activities]
        if len(measured) < len(group) or any(each.measured_steps < _MEASURED for each in measured):
            return None
        found += _find_in(group, measured, named)
    return tuple(found)


def filter_lasting(
    found: Sequence[Straggler], named: Collection[int], crowded_s: Mapping[int, float], now_s: float
) -> tuple[tuple[Straggler, ...], dict[int, float]]:
    """Return the stragglers to report, and the time since which each crowded one is crowded.

    Args:
        named: ranks that were stragglers before.
        crowded_s: last result of this function in the same generation.
        now_s: time on the same clock.
    """
    since_s = {each.rank: crowded_s.get(each.rank, now_s) for each in found if each.is_crowded}
    lasting = [each for each in found if each.rank in named or now_s - since_s.get(each.rank, -math.inf) >= _CROWDED_S]
    return tuple(lasting), since_s


def _find_in(ranks: Sequence[int], measured: Sequence[RankActivity], named: Collection[int]) -> Iterator[Straggler]:
    """Yield the stragglers among ranks with the same work."""
    works = _Times([each.work_s for each in measured])
    busy_times = _Times([each.work_s + each.ready_s for each in measured])
    for rank, activity in zip(ranks, measured, strict=True):
        factor = _STILL if rank in named else _FACTOR
        work_s, busy_s = activity.work_s, activity.work_s + activity.ready_s
        if usual_s := works.exceeded_s(work_s, factor):
            yield Straggler(rank, work_s, usual_s)
        elif usual_s := busy_times.exceeded_s(busy_s, factor):
            yield Straggler(rank, busy_s, usual_s, is_crowded=True)


class _Times:
    """The times of ranks. They are sorted once, so that the median of the others of each rank costs one search."""

    def __init__(self, seconds: Iterable[float]) -> None:
        self._sorted = sorted(seconds)

    def exceeded_s(self, own_s: float, factor: float) -> float | None:
        """Return the median of the others if the rank with this time exceeds it by the factor, or None."""
        usual_s = self._median_without(own_s)
        return usual_s if own_s > usual_s * factor and own_s - usual_s > _FLOOR_S else None

    def _median_without(self, own_s: float) -> float:
        own, others = bisect.bisect_left(self._sorted, own_s), len(self._sorted) - 1
        low, high = (others - 1) // 2, others // 2
        return (self._sorted[low + (low >= own)] + self._sorted[high + (high >= own)]) / 2
