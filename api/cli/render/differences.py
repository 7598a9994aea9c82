"""Differences of specs as a table: a line for each field."""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regroup.api.schemas.comparison.spec_differences import SpecDifferences


def render_differences(
    found: "SpecDifferences", first: str, second: str
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the header, with the names that the user gave for the jobs, and the rows of a table."""
    rows = [(each.path, _format(each.first), _format(each.second)) for each in found.differences]
    return ("FIELD", first, second), rows


def _format(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
