"""Differences between two specs, field by field."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FieldDifference:
    """A field in which two documents differ. A missing value is None."""

    path: str
    """Names of the field and of those that contain it, with dots between them."""
    first: Any
    second: Any


def find_differences(first: Any, second: Any) -> list[FieldDifference]:
    """Return the fields in which two documents differ, by path. A list is one value."""
    return sorted(_differences(first, second, ""), key=lambda each: each.path)


def _differences(first: Any, second: Any, path: str) -> list[FieldDifference]:
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return [
            found
            for name in dict.fromkeys((*first, *second))
            for found in _differences(first.get(name), second.get(name), f"{path}.{name}" if path else str(name))
        ]
    return [] if first == second else [FieldDifference(path, first, second)]
