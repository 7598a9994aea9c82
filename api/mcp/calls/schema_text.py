"""JSON schemas as agents read them: without what they do not need, because they read all of it. Pure."""

from collections.abc import Collection
from typing import Any, cast

_MAPS = ("properties", "$defs")
"""Keywords whose entries are schemas by name."""


def shorten(schema: dict[str, Any], dropped: Collection[str] = ("title",)) -> dict[str, Any]:
    """Return a schema without the keywords that `dropped` names. Fields with such names stay."""
    short = {
        key: _shorten_each(cast(dict[str, Any], value), dropped) if key in _MAPS else _value(value, dropped)
        for key, value in schema.items()
        if not (key in dropped and isinstance(value, str | list))
    }
    return _with_one_type(short)


def _with_one_type(schema: dict[str, Any]) -> dict[str, Any]:
    """Write a value that may be null as `"type": ["string", "null"]` instead of as two schemas."""
    match schema.get("anyOf"):
        case [{"type": str() as kind, **others}, {"type": "null", **rest}] if not rest and "enum" not in others:
            kept = {key: value for key, value in schema.items() if key != "anyOf"}
            return {"type": [kind, "null"], **others, **kept}
        case _:
            return schema


def _shorten_each(schemas: dict[str, Any], dropped: Collection[str]) -> dict[str, Any]:
    return {name: shorten(schema, dropped) for name, schema in schemas.items()}


def _value(value: Any, dropped: Collection[str]) -> Any:
    if isinstance(value, dict):
        return shorten(cast(dict[str, Any], value), dropped)
    if isinstance(value, list):
        return [_value(each, dropped) for each in cast(list[Any], value)]
    return value
