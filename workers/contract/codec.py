"""Convert dataclasses to plain JSON data and back, by their type hints. Unknown fields are ignored.

A field whose hint is a union of several dataclasses is written with the name of its class under `type`.
"""

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

_TYPE = "type"


def plain(value: Any) -> Any:
    """Return a dataclass, or data that holds some, as dicts and lists."""
    if is_dataclass(value) and not isinstance(value, type):
        tagged = _tagged_fields(type(value))
        return {f.name: _plain_field(getattr(value, f.name), f.name in tagged) for f in fields(value)}
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, list | tuple):
        return [plain(item) for item in typing.cast(list[Any], value)]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in typing.cast(dict[str, Any], value).items()}
    return value


T = TypeVar("T")


def build(cls: type[T], data: Mapping[str, Any]) -> T:
    """Return an instance of the dataclass `cls` from its plain data."""
    hints = _hints(cls)
    return cls(**{key: parse(hints[key], value) for key, value in data.items() if key in hints})


def parse(hint: Any, value: Any) -> Any:
    """Return the value of type `hint` from its plain data."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and origin is None:
        if is_dataclass(hint):
            return build(hint, value)
        return hint(value) if issubclass(hint, StrEnum) else value
    if origin is tuple:
        kinds = [inner[0]] * len(value) if len(inner) == 2 and inner[1] is Ellipsis else inner
        return tuple(parse(kind, item) for kind, item in zip(kinds, value, strict=True))
    if origin in (list, Sequence):
        return [parse(inner[0], item) for item in value]
    if origin is dict:
        return {parse_key(inner[0], key): parse(inner[1], item) for key, item in value.items()}
    if origin is types.UnionType and value is not None:
        variants = _variants(hint)
        if len(variants) > 1:
            return build(variants[value[_TYPE]], value)
        options = [each for each in inner if each is not types.NoneType]
        return parse(options[0], value) if len(options) == 1 else value
    return value


def parse_key(hint: Any, key: Any) -> Any:
    """Return a key of a mapping: JSON has them as strings."""
    return int(key) if hint is int else key


@cache
def _hints(cls: Any) -> dict[str, Any]:
    """Return the hint of each field of a dataclass."""
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls)}


@cache
def _tagged_fields(cls: Any) -> frozenset[str]:
    """Return the fields whose value is one of several dataclasses."""
    return frozenset(name for name, hint in _hints(cls).items() if len(_variants(hint)) > 1)


def _variants(hint: Any) -> dict[str, Any]:
    """Return the dataclasses of a union by name."""
    members: tuple[Any, ...] = typing.get_args(hint) if typing.get_origin(hint) is types.UnionType else ()
    return {str(kind.__name__): kind for kind in members if isinstance(kind, type) and is_dataclass(kind)}


def _plain_field(value: Any, is_tagged: bool) -> Any:
    if is_tagged and is_dataclass(value):
        return {_TYPE: type(value).__name__, **plain(value)}
    return plain(value)
