"""Values of stored plans and predictions. A record of another version may lack a value, or have one of another type."""

from collections.abc import Mapping
from typing import Any, cast

from regroup.service.domain.errors import SpecError
from regroup.service.domain.layout import Layout


def read_number(data: Mapping[str, Any], name: str) -> float | None:
    """Return a number; None if there is none."""
    value = data.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def read_text(data: Mapping[str, Any], name: str) -> str:
    """Return a text; empty if there is none."""
    value = data.get(name)
    return value if isinstance(value, str) else ""


def read_texts(data: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the texts of a list; none if there is no list."""
    value = data.get(name)
    return tuple(each for each in cast(list[Any], value) if isinstance(each, str)) if isinstance(value, list) else ()


def read_mapping(data: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return a mapping; None if there is none."""
    value = data.get(name)
    return cast(Mapping[str, Any], value) if isinstance(value, dict) else None


def read_layout(value: object) -> Layout | None:
    """Return a layout; None if the value is not one."""
    if not isinstance(value, dict):
        return None
    try:
        return Layout(**cast(dict[str, int], value))
    except (SpecError, TypeError):  # a degree below 1, of another type, or with an unknown name
        return None
