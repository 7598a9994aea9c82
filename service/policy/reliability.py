"""The reliability report: how often jobs were interrupted, for how long, why, and what it cost. Pure."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regroup.service.domain.states import PLANNED_REASONS, Reason

PHASES = ("detect", "teardown", "decide", "form", "restore", "first_step")
"""Phases of a recovery, in their order."""
MOST_BINS = 60
_BIN_SIZES_S = (60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 86_400.0, 7 * 86_400.0, 30 * 86_400.0)
_HOUR_S = 3600.0
_REASONS = frozenset(reason.value for reason in Reason)
_PLANNED = frozenset(reason.value for reason in PLANNED_REASONS)
_UNKNOWN = "unknown"


@dataclass(frozen=True)
class Interruption:
    """An incident of a job, with what is needed to measure its loss."""

    job_id: str
    job_name: str
    project: str
    number: int
    """Number of the incident in its job; the oldest is 1."""
    cause: str
    time_s: float
    """Time at which it was recorded."""
    data: Mapping[str, Any]
    """Newest report of the incident."""
    devices: int | None = None
    """Devices of the generation that it ended; None if that is not known."""
    step_s: float = 0.0
    """Usual duration of a step of the job."""

    @property
    def reason(self) -> str:
        """The cause as one of a small set of words."""
        found = str(self.data.get("reason") or _UNKNOWN)
        return found if found in _REASONS else _UNKNOWN

    @property
    def is_planned(self) -> bool:
        """True if it is not a failure, but a resize, a drain or another planned change."""
        return self.reason in _PLANNED

    @property
    def durations(self) -> Mapping[str, float]:
        """Phase → seconds, for the phases that are complete."""
        return _numbers(self.data.get("durations"))

    @property
    def total_s(self) -> float | None:
        """Time from the fault to the next step; None if there was none yet."""
        return self.durations.get("total")

    @property
    def steps_lost(self) -> int:
        """Number of steps that were repeated."""
        return int(_numbers(self.data).get("steps_lost", 0))

    @property
    def lost_device_hours(self) -> float:
        """Device-hours without progress: until the next step, or as far as it is known, and in repeated steps."""
        if self.devices is None or self.reason == Reason.SUSPENDED:
            return 0.0  # a suspended job holds no devices
        stopped_s = self.total_s
        if stopped_s is None:
            times = _numbers(self.data.get("times"))
            stopped_s = max(times.values(), default=0.0) - times.get("fault_s", max(times.values(), default=0.0))
        return self.devices * (max(0.0, stopped_s) + self.steps_lost * self.step_s) / _HOUR_S


@dataclass(frozen=True)
class Spread:
    """Durations of something that happened several times."""

    count: int
    mean_s: float
    median_s: float
    p95_s: float
    max_s: float


@dataclass(frozen=True)
class CauseReport:
    """Incidents with one reason."""

    reason: str
    is_planned: bool
    incidents: int
    recovery: Spread | None
    """Time from the fault to the next step; None if no job continued."""
    phases: Mapping[str, float]
    """Phase → mean seconds."""
    steps_lost: int
    lost_device_hours: float


@dataclass(frozen=True)
class TimeBin:
    """Incidents in a part of the window."""

    start_s: float
    incidents: Mapping[str, int]
    """Reason → number."""


@dataclass(frozen=True)
class NodeFaults:
    """Faults of one node."""

    node: str
    faults: Mapping[str, int]
    """Kind → number."""
    last_s: float


@dataclass(frozen=True)
class IncidentReport:
    """Summary of the incidents of a window."""

    failures: int
    """Incidents that were not planned."""
    recovery: Spread | None
    """Time from a failure to the next step."""
    phases: Mapping[str, Spread]
    """Phase → its duration, over all failures."""
    causes: Sequence[CauseReport]
    """By lost device-hours, the largest first."""
    bins: Sequence[TimeBin]
    bin_s: float
    lost_device_hours: float
    steps_lost: int = 0
    newest: Sequence[Interruption] = field(default_factory=tuple[Interruption, ...])


def report_incidents(found: Sequence[Interruption], from_s: float, to_s: float, newest: int = 50) -> IncidentReport:
    """Return the summary of these incidents.

    Args:
        found: incidents in the window, newest first.
        newest: number of incidents to keep.
    """
    failures = [each for each in found if not each.is_planned]
    by_reason = defaultdict[str, list[Interruption]](list)
    for each in found:
        by_reason[each.reason].append(each)
    causes = [_report_cause(reason, some) for reason, some in by_reason.items()]
    bin_s = bin_size_s(from_s, to_s)
    return IncidentReport(
        failures=len(failures),
        recovery=spread_of(_totals(failures)),
        phases=_spread_phases(failures),
        causes=sorted(causes, key=lambda each: (-each.lost_device_hours, -each.incidents, each.reason)),
        bins=_bins(found, from_s, to_s, bin_s),
        bin_s=bin_s,
        lost_device_hours=math.fsum(each.lost_device_hours for each in found),
        steps_lost=sum(each.steps_lost for each in found),
        newest=tuple(found[:newest]),
    )


def spread_of(values: Iterable[float]) -> Spread | None:
    """Return the spread of durations; None if there are none. The 95th percentile is one of the values."""
    ordered = sorted(values)
    if not ordered:
        return None
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
    return Spread(len(ordered), math.fsum(ordered) / len(ordered), median, p95, ordered[-1])


def bin_size_s(from_s: float, to_s: float) -> float:
    """Return the length of a part of the window, so that there are at most 60."""
    length_s = to_s - from_s
    return next((size for size in _BIN_SIZES_S if length_s <= MOST_BINS * size), length_s / MOST_BINS)


def rank_nodes(faults: Iterable[tuple[str, str, float]], most: int) -> list[NodeFaults]:
    """Return the nodes with the most faults, those with more first.

    Args:
        faults: node, kind and time of each fault.
        most: number of nodes.
    """
    kinds, last = defaultdict[str, Counter[str]](Counter), defaultdict[str, float](float)
    for node, kind, time_s in faults:
        kinds[node][kind] += 1
        last[node] = max(last[node], time_s)
    ranked = sorted(kinds, key=lambda node: (-kinds[node].total(), -last[node], node))
    return [NodeFaults(node, dict(sorted(kinds[node].items())), last[node]) for node in ranked[:most]]


def mean_goodput(jobs: Iterable[tuple[float, float | None]]) -> float | None:
    """Return the goodput of several jobs together; None if that of none is measured.

    Args:
        jobs: device-seconds and goodput of each job.
    """
    measured = [(seconds, value) for seconds, value in jobs if value is not None and seconds > 0]
    total_s = math.fsum(seconds for seconds, _ in measured)
    return math.fsum(seconds * value for seconds, value in measured) / total_s if measured else None


def _report_cause(reason: str, some: Sequence[Interruption]) -> CauseReport:
    phases = {phase: spread.mean_s for phase, spread in _spread_phases(some).items()}
    return CauseReport(
        reason=reason,
        is_planned=reason in _PLANNED,
        incidents=len(some),
        recovery=spread_of(_totals(some)),
        phases=phases,
        steps_lost=sum(each.steps_lost for each in some),
        lost_device_hours=math.fsum(each.lost_device_hours for each in some),
    )


def _totals(some: Iterable[Interruption]) -> list[float]:
    """Return the time of each completed recovery. Users choose the duration of a suspension, so it is left out."""
    return [each.total_s for each in some if each.total_s is not None and each.reason != Reason.SUSPENDED]


def _spread_phases(some: Sequence[Interruption]) -> dict[str, Spread]:
    spreads = {phase: spread_of(each.durations[phase] for each in some if phase in each.durations) for phase in PHASES}
    return {phase: spread for phase, spread in spreads.items() if spread is not None}


def _bins(found: Iterable[Interruption], from_s: float, to_s: float, bin_s: float) -> list[TimeBin]:
    count = max(1, math.ceil((to_s - from_s) / bin_s))
    counters = [Counter[str]() for _ in range(count)]
    for each in found:
        counters[min(count - 1, max(0, int((each.time_s - from_s) / bin_s)))][each.reason] += 1
    return [TimeBin(from_s + number * bin_s, dict(sorted(found.items()))) for number, found in enumerate(counters)]


def _numbers(value: object) -> dict[str, float]:
    """Return the finite numbers of a stored object. A damaged record has others."""
    if not isinstance(value, Mapping):
        return {}
    pairs: Mapping[Any, Any] = value
    return {str(key): float(each) for key, each in pairs.items() if _is_finite(each)}


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
