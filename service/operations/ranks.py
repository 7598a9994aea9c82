"""The ranks of a job now: their places, their states, and the time that they work in a step. Pure."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_SLOW_FACTOR = 1.5
"""Work of a rank, relative to the median, from which it is slow."""
_SLOW_FLOOR_S = 0.02
"""Smallest difference per step that counts, as in `policy/detection/straggler.py`."""
_BEHIND_S = 2.0
"""Time without another phase from which a rank is behind. Nodes report at different moments, up to a second apart."""
_WAIT_SHARE = 0.5
"""Part of a step from which a rank mostly waits."""


class RankState(StrEnum):
    """State of a rank, relative to the other ranks."""

    WORKS = "works"
    """The rank computes for most of a step."""
    WAITS = "waits"
    """The rank waits for other ranks for most of a step."""
    SLOW = "slow"
    """The rank works longer than the others, which wait for it."""
    CROWDED = "crowded"
    """The rank works no longer than the others, but waits for a processor that another process uses."""
    BEHIND = "behind"
    """The rank stays at a step that is older than that of other ranks."""
    UNKNOWN = "unknown"
    """The rank has not reported yet, or it has ended."""


@dataclass(frozen=True)
class RankView:
    """One rank."""

    rank: int
    node: str
    node_id: str
    local_rank: int
    device: str
    state: RankState
    step: int | None = None
    phase: str | None = None
    work_s: float | None = None
    """Time of a step in which the rank computes."""
    ready_s: float | None = None
    """Time of a step in which the rank waits for a processor."""
    wait_s: float | None = None
    """Rest of a step, in which the rank waits for other ranks and for data."""
    stalled_s: float | None = None
    """Time since the rank moved on to another step or phase."""
    factor: float | None = None
    """Work of the rank, divided by the median of all ranks."""


@dataclass(frozen=True)
class RankViews:
    """The ranks of the newest generation."""

    generation: int
    ranks: tuple[RankView, ...]
    step_s: float | None
    """Moving average of the time of a step."""
    median_work_s: float | None


def view_ranks(
    generation: int,
    places: Sequence[Mapping[str, Any]],
    reports: Mapping[str, Sequence[Any]],
    stragglers: Mapping[int, bool],
    step_s: float | None,
) -> RankViews:
    """Describe the ranks of a generation.

    Args:
        places: place of each rank.
        reports: rank → step, phase and, if they were measured, `work_s`, `ready_s` and `stalled_s`.
        stragglers: ranks that the supervisor reported; True for one that waits for a processor.
        step_s: time of a step.
    """
    sound = {int(rank): report for rank, report in reports.items() if _is_sound(report)}
    works = [report[2] for report in sound.values() if len(report) > 2 and report[2] > 0]
    median_s = statistics.median(works) if works else None
    newest = max((report[0] for report in sound.values()), default=None)
    ranks = sorted(places, key=lambda place: int(place["rank"]))
    views = tuple(_view(place, sound.get(int(place["rank"])), stragglers, step_s, median_s, newest) for place in ranks)
    return RankViews(generation, views, step_s, median_s)


def _view(
    place: Mapping[str, Any],
    report: Sequence[Any] | None,
    stragglers: Mapping[int, bool],
    step_s: float | None,
    median_s: float | None,
    newest: int | None,
) -> RankView:
    rank = int(place["rank"])
    where = (
        rank, str(place.get("node_name", "")), str(place.get("node_id", "")), int(place.get("local_rank", 0)),
        str(place.get("device", "")),
    )  # fmt: skip
    if report is None:
        return RankView(*where, RankState.UNKNOWN)
    step, phase = int(report[0]), str(report[1])
    work_s, ready_s, stalled_s = (float(value) for value in report[2:5]) if len(report) > 2 else (None, None, None)
    is_measured = work_s is not None and work_s > 0
    if not is_measured:
        work_s = ready_s = None
    wait_s = None if work_s is None or step_s is None else max(0.0, step_s - work_s - (ready_s or 0.0))
    factor = None if work_s is None or not median_s else work_s / median_s
    if rank in stragglers:
        state = RankState.CROWDED if stragglers[rank] else RankState.SLOW
    elif factor is not None and factor >= _SLOW_FACTOR and (work_s or 0.0) - (median_s or 0.0) > _SLOW_FLOOR_S:
        state = RankState.SLOW
    elif newest is not None and step < newest and (stalled_s is None or stalled_s >= _BEHIND_S):
        state = RankState.BEHIND
    elif wait_s is not None and step_s and wait_s > _WAIT_SHARE * step_s:
        state = RankState.WAITS
    else:
        state = RankState.WORKS
    return RankView(*where, state, step, phase, work_s, ready_s, wait_s, stalled_s, factor)


def _is_sound(report: Any) -> bool:
    """Return False for a stored report that is damaged."""
    if not isinstance(report, Sequence) or isinstance(report, str):
        return False
    items: list[Any] = list(report)  # type: ignore[reportUnknownArgumentType]
    return len(items) in (2, 5) and all(
        isinstance(value, int | float) and math.isfinite(value) for value in (items[0], *items[2:])
    )
