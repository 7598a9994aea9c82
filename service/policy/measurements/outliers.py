"""Find values that are far slower than the others, with a rule that is robust against the outliers themselves."""

from collections.abc import Mapping
from statistics import median
from typing import TypeVar

LEAST = 3
"""Smallest number of values in which an outlier can be identified."""
SCORE = 3.5
"""Modified z-score from which a value is an outlier (Iglewicz and Hoaglin 1993)."""
MARGIN = 0.15
"""Fraction below the median that is not reported, however similar the other values are."""
_NORMAL = 0.6745
"""Median absolute deviation of a normal distribution, in standard deviations."""
Key = TypeVar("Key")


def find_slow(speeds: Mapping[Key, float]) -> dict[Key, float]:
    """Return the outliers below, with their fraction of the median, the slowest first.

    Deviations from the median are measured in median absolute deviations: up to half of the values can be outliers
    without changing either.
    """
    if len(speeds) < LEAST:
        return {}
    usual = median(speeds.values())
    if usual <= 0:
        return {}
    spread = median(abs(speed - usual) for speed in speeds.values())
    found = {
        key: speed / usual
        for key, speed in speeds.items()
        if speed < (1 - MARGIN) * usual and _NORMAL * (usual - speed) > SCORE * spread
    }
    return dict(sorted(found.items(), key=lambda item: item[1]))
