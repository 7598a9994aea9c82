"""The numbers of a report that a step's row can show. Pure."""

from collections.abc import Iterator, Mapping
from itertools import islice
from numbers import Real
from typing import Any

MOST = 64
"""Maximum number of metrics of one report. The first ones are kept."""


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the numeric metrics by name. Names in nested mappings are joined by `/`. Other values are dropped."""
    return dict(islice(_flat(metrics, ""), MOST))


def _flat(metrics: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}/")
        elif isinstance(value, Real):
            yield f"{prefix}{name}", float(value)
