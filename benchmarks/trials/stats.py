"""Statistics of benchmark results. They are pure: no clock and no I/O, and randomness comes from a seed."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A point estimate with its confidence interval."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return (self.high - self.low) / 2


def percentile(values: Sequence[float], q: float) -> float:
    """Return the q-th percentile (0–100), with linear interpolation between order statistics."""
    if not values:
        raise ValueError("percentile of no values: at least one trial must have succeeded")
    ordered = sorted(values)
    position = (len(ordered) - 1) * q / 100
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return percentile(values, 50)


def summary(values: Sequence[float]) -> dict[str, float]:
    """Return the count, median, 95th percentile, minimum and maximum, under the names of the result files."""
    return {
        "n": len(values),
        "p50": median(values),
        "p95": percentile(values, 95),
        "min": min(values),
        "max": max(values),
    }


def ratio_of_totals(pairs: Sequence[tuple[float, float]], *, seed: int = 0, resamples: int = 4000) -> Interval:
    """Return sum(a) / sum(b) over paired blocks (a, b), with a 95 % bootstrap interval that resamples whole blocks.

    The ratio uses totals, not medians, because a rare long stall of one arm must count. It resamples whole blocks
    because the two arms of a block ran one after the other, so a slow period of the machine affects both.
    """
    return _bootstrap(pairs, _totals, seed, resamples)


def ratio_of_typical(pairs: Sequence[tuple[float, float]], *, seed: int = 0, resamples: int = 4000) -> Interval:
    """Return the median of a/b over paired blocks (a, b), with a 95 % bootstrap interval.

    Rare stalls of either arm do not affect it.
    """
    return _bootstrap(pairs, lambda sample: median([a / b for a, b in sample]), seed, resamples)


def _totals(pairs: Sequence[tuple[float, float]]) -> float:
    return math.fsum(a for a, _ in pairs) / math.fsum(b for _, b in pairs)


def _bootstrap(
    pairs: Sequence[tuple[float, float]],
    estimate: Callable[[Sequence[tuple[float, float]]], float],
    seed: int,
    resamples: int,
) -> Interval:
    if len(pairs) < 2:
        raise ValueError(f"an interval needs at least two paired blocks (got {len(pairs)})")
    draw = random.Random(seed)
    values = [estimate(draw.choices(pairs, k=len(pairs))) for _ in range(resamples)]
    return Interval(estimate(pairs), percentile(values, 2.5), percentile(values, 97.5))
