"""Exponential backoff: the delay before the next attempt after failures in a row. Pure."""

_MAX_DOUBLINGS = 64
"""A float holds this power of two. Any limit is reached before."""


def backoff_s(failures: int, *, first_s: float, longest_s: float) -> float:
    """Return the delay after this number of consecutive failures: twice as long after each, up to `longest_s`.

    Without a failure there is no delay.
    """
    if failures <= 0:
        return 0.0
    return min(longest_s, first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
