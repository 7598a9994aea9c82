"""Time and steps that a job lost between its generations, as far as its stored steps show. Pure.

An incident accounts for its own time. A generation that ended without one, because the supervisor was lost with it,
leaves only its steps. The time after the last of them led to nothing.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from regroup.service.domain.states import JobState
from regroup.service.policy.accounting import StateMark, TimeClass, spans

SILENCE_S = 75.0
"""Time without a report after which a live job is assumed to have stopped. Reports are stored every 30 seconds."""


@dataclass(frozen=True)
class GenerationProgress:
    """Progress of one generation, from its stored steps."""

    number: int
    formed_s: float
    """Unix seconds at which its record was written."""
    first_step_s: float | None = None
    """Time of its first step; None: it committed none, or its steps were removed."""
    last_step_s: float | None = None
    repeated: int = 0
    """Number of its steps that later generations repeated."""
    repeated_s: float = 0.0
    """Duration of those steps."""
    untimed: int = 0
    """Number of those steps without a duration."""


@dataclass(frozen=True)
class _Gap:
    """A time in which no step was committed that counts."""

    since_s: float
    formed_s: float
    """Start of the next generation; the end of the gap if there is none."""
    until_s: float


def unexplained_seconds(
    timeline: Sequence[StateMark],
    progress: Sequence[GenerationProgress],
    explained: Collection[int],
    until_s: float,
    reported_s: float | None = None,
) -> dict[TimeClass, float]:
    """Return the seconds in which the job was RUNNING, but committed no step, because a generation had ended.

    Args:
        timeline: marks in order of commit.
        progress: generations in the order of their numbers.
        explained: generations whose end an incident accounts for.
        until_s: present time, or the time of the job's end.
        reported_s: time of the last report of its supervisor.
    """
    running = [(start_s, end_s) for start_s, end_s, mark in spans(timeline, until_s) if _is_running(mark)]
    lost = {TimeClass.DETECTING: 0.0, TimeClass.RECOVERING: 0.0}
    gaps = [*_gaps_between(progress, explained, until_s)]
    if (last := _last_gap(timeline, progress, explained, until_s, reported_s)) is not None:
        gaps.append(last)
    for gap in gaps:
        for start_s, end_s in running:
            lost[TimeClass.DETECTING] += _overlap(start_s, end_s, gap.since_s, gap.formed_s)
            lost[TimeClass.RECOVERING] += _overlap(start_s, end_s, max(gap.since_s, gap.formed_s), gap.until_s)
    return lost


def repeated_steps(progress: Sequence[GenerationProgress]) -> int:
    """Return the number of stored steps that a later generation repeated."""
    return sum(each.repeated for each in progress)


def repeated_seconds(progress: Sequence[GenerationProgress], recorded: int, step_duration_s: float) -> float:
    """Return the seconds of all repeated steps.

    Args:
        recorded: number of repeated steps according to incidents. Steps without a row count as an average one.
        step_duration_s: average duration of a step.
    """
    untimed = sum(each.untimed for each in progress) + max(0, recorded - repeated_steps(progress))
    return sum(each.repeated_s for each in progress) + untimed * step_duration_s


def with_unexplained(
    recorded: Mapping[str, int], progress: Sequence[GenerationProgress], reason: str
) -> dict[str, int]:
    """Return the lost steps by reason. Repeated steps that no incident recorded count under `reason`."""
    lost = dict(recorded)
    more = repeated_steps(progress) - sum(recorded.values())
    if more > 0:
        lost[reason] = lost.get(reason, 0) + more
    return lost


def _gaps_between(progress: Sequence[GenerationProgress], explained: Collection[int], until_s: float) -> Iterator[_Gap]:
    """Yield the gaps between the last step of a generation and the first step of a later one."""
    since_s: float | None = None
    following = [*(each.formed_s for each in progress[1:]), until_s]
    for each, next_s in zip(progress, following, strict=False):
        ended_s = next_s if each.first_step_s is None else each.first_step_s
        if since_s is not None:
            yield _Gap(since_s, each.formed_s, ended_s)
            since_s = ended_s
        if each.last_step_s is not None:
            since_s = each.last_step_s
        if each.number in explained:
            since_s = None


def _last_gap(
    timeline: Sequence[StateMark],
    progress: Sequence[GenerationProgress],
    explained: Collection[int],
    until_s: float,
    reported_s: float | None,
) -> _Gap | None:
    """Return the gap after the newest generation; None if it ended by plan, or may still train."""
    newest = progress[-1] if progress else None
    if newest is None or newest.number in explained or not timeline:
        return None
    if timeline[-1].state is JobState.RUNNING:
        alive_s = max(newest.last_step_s or 0.0, reported_s or 0.0)
        is_silent = alive_s > 0 and until_s - alive_s > SILENCE_S
        return _Gap(alive_s, until_s, until_s) if is_silent else None
    last_run = max((number for number, mark in enumerate(timeline) if mark.state is JobState.RUNNING), default=None)
    if last_run is None or timeline[last_run + 1].state is not JobState.QUEUED:
        return None
    queued_s, since_s = timeline[last_run + 1].at_s, newest.last_step_s or reported_s
    # Of a generation that was formed after the job queued, there is nothing to account for yet.
    return None if since_s is None or newest.formed_s > queued_s else _Gap(since_s, queued_s, queued_s)


def _is_running(mark: StateMark) -> bool:
    return mark.state is JobState.RUNNING and not mark.is_held


def _overlap(start_s: float, end_s: float, since_s: float, until_s: float) -> float:
    return max(0.0, min(end_s, until_s) - max(start_s, since_s))
