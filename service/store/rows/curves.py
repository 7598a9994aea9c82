"""Curves of a job's metrics, in few points."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class CurveSelection:
    """The part of a job's steps that curves show."""

    metrics: Sequence[str]
    """Names of the metrics."""
    points: int
    """Largest number of points of a line."""
    from_step: int = 1
    to_step: int | None = None
    """Last step; None for the newest one."""


@dataclass(frozen=True)
class Spread:
    """Values of a metric in the steps of one point."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class CurvePoint:
    """Neighbouring steps of one line."""

    repeated_generation: int | None
    """Generation whose steps a later one repeated; None for committed steps."""
    step: int
    """Newest of the steps."""
    time_s: float
    """Unix seconds of its commit."""
    values: Mapping[str, Spread]
    """Metric → its values. Metrics without a value in these steps are absent."""


@dataclass(frozen=True)
class SampledStep:
    """The metrics of one committed step."""

    step: int
    time_s: float
    """Unix seconds of its commit."""
    values: Mapping[str, float]
    """Metric → its value. Metrics without a value in this step are absent."""


@dataclass(frozen=True)
class Curves:
    """The points of all lines: committed steps first, then repeated steps by generation, each in order."""

    steps_per_point: int
    points: Sequence[CurvePoint]
