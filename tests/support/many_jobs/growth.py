"""Growth of a measured number with the number of jobs that a server has run."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MIN_SAMPLES = 8
"""Fewer samples of a number show nothing."""
_WARM_UP = 0.2
"""Share of a server's jobs after which its caches are full."""
_WARM_UP_S = 75.0
"""Time after which as many jobs settle as end: for the metrics, a job is unfinished until a minute after its end."""
_DATABASE_RATIO = 1.3
"""Largest accepted ratio of the database's growth per job, second half to first half."""


@dataclass(frozen=True)
class Sample:
    """Numbers at one moment."""

    jobs: int
    """Number of jobs that have ended so far."""
    at_s: float
    """Time since the first job, in seconds."""
    start: int
    """Number of times that the server has been started so far."""
    values: Mapping[str, float]


@dataclass(frozen=True)
class Limit:
    """Largest accepted growth of a number: the sum of three parts."""

    per_job: float = 0.0
    noise: float = 0.0
    """Growth that the measurement itself shows."""
    relative: float = 0.0
    """Share of the first value."""


def find_growth(samples: Sequence[Sample], limits: Mapping[str, Limit]) -> list[str]:
    """Describe each number that grew beyond its limit during the last life of the server, after its warm-up.

    The growth is that of a line through the samples, so a single high value does not count.
    """
    last = [sample for sample in samples if sample.start == samples[-1].start] if samples else []
    settled = [sample for sample in last if _is_settled(sample, last[0], last[-1])]
    found: list[str] = []
    for name, limit in limits.items():
        points = [(sample.jobs, sample.values[name]) for sample in settled if name in sample.values]
        if len(points) < MIN_SAMPLES:
            found.append(f"{name}: {len(points)} samples of one server, {MIN_SAMPLES} are necessary")
            continue
        growth, first, span = _fitted(points)
        allowed = limit.noise + limit.per_job * span + limit.relative * abs(first)
        if growth > allowed:
            found.append(f"{name} grew by {growth:.4g} in {span:.0f} jobs, from {first:.4g}; allowed {allowed:.4g}")
    return found


def find_database_growth(samples: Sequence[Sample]) -> list[str]:
    """Describe the growth of the database per job, if it is larger in the second half than in the first."""
    points = [(sample.jobs, sample.values["database_bytes"]) for sample in samples]
    if len(points) < MIN_SAMPLES:
        return [f"database_bytes: {len(points)} samples, {MIN_SAMPLES} are necessary"]
    middle = len(points) // 2
    before, after = (_per_job(points[0], points[middle]), _per_job(points[middle], points[-1]))
    if after <= _DATABASE_RATIO * before:
        return []
    return [f"the database grew by {after:.0f} bytes per job in the second half, and {before:.0f} in the first"]


def _is_settled(sample: Sample, first: Sample, newest: Sample) -> bool:
    begin_jobs = first.jobs + _WARM_UP * (newest.jobs - first.jobs)
    return sample.jobs >= begin_jobs and sample.at_s >= first.at_s + _WARM_UP_S


def _fitted(points: Sequence[tuple[int, float]]) -> tuple[float, float, float]:
    """Return the growth, the first value and the number of jobs of the line through the points."""
    jobs = [float(count) for count, _ in points]
    slope, intercept = statistics.linear_regression(jobs, [value for _, value in points])
    span = jobs[-1] - jobs[0]
    return slope * span, intercept + slope * jobs[0], span


def _per_job(first: tuple[int, float], last: tuple[int, float]) -> float:
    return (last[1] - first[1]) / max(1, last[0] - first[0])
