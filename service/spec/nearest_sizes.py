"""Sizes that a job could have instead of one that it cannot."""

from collections.abc import Callable

_FURTHER = 64
"""Degrees above twice the one that was asked for, in which a legal one is looked for."""


def nearest(degree: int, is_legal: Callable[[int], bool]) -> tuple[int, ...]:
    """The nearest legal data-parallel degrees below and above an illegal one; at most one of each."""
    below = next((other for other in range(degree - 1, 0, -1) if is_legal(other)), None)
    above = next((other for other in range(degree + 1, 2 * degree + _FURTHER) if is_legal(other)), None)
    return tuple(other for other in (below, above) if other is not None)


def said(field: str, degree: int, is_legal: Callable[[int], bool]) -> str:
    """For the end of a message about an illegal degree; empty if its neighbours are no better."""
    found = nearest(degree, is_legal)
    return f"; legal sizes next to {field}={degree}: {' and '.join(map(str, found))}" if found else ""
