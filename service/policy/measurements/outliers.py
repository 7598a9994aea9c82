"""What is far slower than its like: a rule that one slow thing among few cannot pull towards itself."""

from collections.abc import Mapping
from statistics import median
from typing import TypeVar

LEAST = 3
"""Of fewer nobody can say which is the odd one."""
SCORE = 3.5
"""Modified z-score from which a value is an outlier (Iglewicz and Hoaglin 1993)."""
MARGIN = 0.15
"""What is less than this share below the median is not worth a person's time, however alike the others are."""
_NORMAL = 0.6745
"""Median absolute deviation of a normal distribution, in standard deviations."""
Key = TypeVar("Key")


def find_slow(speeds: Mapping[Key, float]) -> dict[Key, float]:
    """Those that are outliers below, with their share of the median; the slowest first.

    Deviations are taken from the median, in median absolute deviations: up to half of the values may be odd without
    moving either.
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
