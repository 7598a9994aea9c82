"""Of what training code reports, the numbers that a step's row can show. Pure."""

from collections.abc import Iterator, Mapping
from itertools import islice
from numbers import Real
from typing import Any

MOST = 64
"""Numbers that are shown of one report: the first ones."""


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Names and values, those of mappings within joined by `/`; what is no number is left out."""
    return dict(islice(_flat(metrics, ""), MOST))


def _flat(metrics: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}/")
        elif isinstance(value, Real):
            yield f"{prefix}{name}", float(value)
