"""Account for a job's time: every second has one class, and the classes sum to wall-clock time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from regroup.service.domain.states import PLANNED_REASONS, JobState, Reason


class TimeClass(StrEnum):
    """Use of a second."""

    QUEUED = "queued"
    STARTING = "starting"
    PRODUCTIVE = "productive"
    """Steps that count."""
    RECOMPUTE = "recompute"
    """Steps that a later generation repeated."""
    STALL = "checkpoint_stall"
    """Training waited for snapshots and checkpoints."""
    DETECTING = "detecting"
    """From a failure until its detection."""
    HANG = "hang"
    """No rank made progress, until the detection."""
    RECOVERING = "recovering"
    RESIZING = "resizing"
    DRAINING = "draining"
    SUSPENDED = "suspended"
    HELD = "held"
    """Held after a failure for debugging."""


CLASS_OF_STATE: Mapping[JobState, TimeClass] = {
    JobState.QUEUED: TimeClass.QUEUED,
    JobState.PLACING: TimeClass.STARTING,
    JobState.STARTING: TimeClass.STARTING,
    JobState.RUNNING: TimeClass.PRODUCTIVE,
    JobState.RECOVERING: TimeClass.RECOVERING,
    JobState.RESIZING: TimeClass.RESIZING,
    JobState.DRAINING: TimeClass.DRAINING,
    JobState.SUSPENDED: TimeClass.SUSPENDED,
}
"""Time class of every state in which time passes for a job."""

_STOOD_STILL = (Reason.HANG, Reason.DESYNC)
_IDLE = (TimeClass.QUEUED, TimeClass.SUSPENDED)


@dataclass(frozen=True)
class StateMark:
    """The job is in `state` from `at_s` until the next mark."""

    at_s: float
    state: JobState
    is_held: bool = False
    """True if the job has failed and its end is deferred."""


_NOTHING: Mapping[TimeClass, float] = {}


def seconds_by_class(
    timeline: Sequence[StateMark], until_s: float, within: Mapping[TimeClass, float] = _NOTHING
) -> dict[TimeClass, float]:
    """Return the seconds of each class from the first mark to the terminal one, else to `until_s`. They sum to
    wall-clock time.

    Args:
        timeline: marks in order of commit. Clocks of several machines wrote them: a mark before its predecessor counts
            as simultaneous, so that no second is negative or counted twice.
        within: seconds of other classes while the job was RUNNING. They are subtracted from PRODUCTIVE, as far as
            possible.
    """
    seconds = dict.fromkeys(TimeClass, 0.0)
    for start_s, end_s, mark in spans(timeline, until_s):
        seconds[TimeClass.HELD if mark.is_held else CLASS_OF_STATE[mark.state]] += end_s - start_s
    for kind, other_s in within.items():
        shifted_s = min(max(0.0, other_s), seconds[TimeClass.PRODUCTIVE])
        seconds[TimeClass.PRODUCTIVE] -= shifted_s
        seconds[kind] += shifted_s
    return seconds


def incident_seconds(incidents: Iterable[Mapping[str, Any]]) -> dict[TimeClass, float]:
    """Return the seconds that incidents took while their jobs were still RUNNING: until detection and the end of the
    ranks.

    Args:
        incidents: incident events, with `reason` and `durations`.
    """
    classes = (TimeClass.HANG, TimeClass.DETECTING, TimeClass.RECOVERING, TimeClass.RESIZING)
    spent: dict[TimeClass, float] = dict.fromkeys(classes, 0.0)
    for incident in incidents:
        durations = incident.get("durations") or {}
        kind = TimeClass.HANG if incident.get("reason") in _STOOD_STILL else TimeClass.DETECTING
        spent[kind] += float(durations.get("detect") or 0.0)
        is_planned = incident.get("reason") in PLANNED_REASONS
        spent[TimeClass.RESIZING if is_planned else TimeClass.RECOVERING] += float(durations.get("teardown") or 0.0)
    return spent


def steps_lost(incidents: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of repeated committed steps by the reason of their incidents."""
    lost: dict[str, int] = {}
    for incident in incidents:
        reason = str(incident.get("reason") or "unknown")
        lost[reason] = lost.get(reason, 0) + int(incident.get("steps_lost") or 0)
    return lost


def mean_recovery_s(incidents: Iterable[Mapping[str, Any]]) -> float | None:
    """Return the mean time from a failure to the first step after it; None before the first one. Planned changes do not
    count."""
    failed = [each.get("durations") or {} for each in incidents if each.get("reason") not in PLANNED_REASONS]
    took = [float(durations["total"]) for durations in failed if durations.get("total") is not None]
    return sum(took) / len(took) if took else None


def goodput(seconds: Mapping[TimeClass, float]) -> float | None:
    """Return the fraction of the time with devices that went into steps that count; None before there was any."""
    held = allocated_s(seconds)
    return seconds[TimeClass.PRODUCTIVE] / held if held > 0 else None


def allocated_s(seconds: Mapping[TimeClass, float]) -> float:
    """Return the seconds in which the job had devices."""
    return sum(value for kind, value in seconds.items() if kind not in _IDLE)


def device_seconds(seconds: Mapping[TimeClass, float], devices: int) -> dict[TimeClass, float]:
    """Return the device-seconds of each class with devices."""
    return {kind: value * devices for kind, value in seconds.items() if kind not in _IDLE}


def spare_device_seconds(timeline: Sequence[tuple[float, int]], until_s: float) -> float:
    """Return the device-seconds of spares.

    Args:
        timeline: (time, devices from then on) in order of commit. A time before its predecessor's counts as
            simultaneous.
    """
    total, since_s, devices = 0.0, 0.0, 0
    for at_s, following in [*timeline, (until_s, 0)]:
        at_s = max(at_s, since_s)
        total += (at_s - since_s) * devices
        since_s, devices = at_s, following
    return total


def queue_waits(timeline: Sequence[StateMark]) -> list[float]:
    """Return the seconds of each finished wait in the queue."""
    until_s = timeline[-1].at_s if timeline else 0.0
    return [end_s - start_s for start_s, end_s, mark in spans(timeline, until_s) if mark.state is JobState.QUEUED]


def spans(timeline: Sequence[StateMark], until_s: float) -> Iterable[tuple[float, float, StateMark]]:
    """Yield the start, the end and the mark of each time before a terminal mark."""
    if not timeline:
        return
    start_s = timeline[0].at_s
    for mark, following in zip(timeline, [*timeline[1:], None], strict=True):
        if mark.state.is_terminal:
            return
        end_s = max(start_s, following.at_s if following else until_s)
        yield start_s, end_s, mark
        start_s = end_s
