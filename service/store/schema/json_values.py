"""Conversion of reported values to plain data that both databases and JSON can store."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast


class CorruptJson(dict[str, Any]):
    """The value of a column whose text is not JSON: an empty object of a type of its own."""


def plain(value: Any) -> Any:
    """Return `value` with non-finite numbers as None and text without NUL or lone surrogates.

    PostgreSQL accepts neither in JSON and text.
    """
    kind = type(value)
    if kind is int or kind is bool or value is None:  # the usual types first: all steps pass through
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        is_simple = kind is str and value.isascii() and "\x00" not in value
        return value if is_simple else value.replace("\x00", "\ufffd").encode(errors="replace").decode()
    if kind is dict or isinstance(value, Mapping):
        items = cast(Mapping[Any, Any], value).items()
        return {plain(key if type(key) is str else str(key)): plain(item) for key, item in items}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain(item) for item in cast(Sequence[Any], value)]
    return value


def finite(value: float | None) -> float | None:
    """Return a float; None for a value that is not finite."""
    return None if value is None or not math.isfinite(value) else float(value)


def number(data: Mapping[str, Any], name: str) -> float | None:
    """Return a field as a finite float; None if it is missing or not a finite number."""
    value = plain(data.get(name))
    return float(value) if isinstance(value, int | float) else None
