"""Convert dataclasses to plain JSON data and back, by their type hints. Unknown fields are ignored."""

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any, TypeVar


def plain(value: Any) -> Any:
    """Return a dataclass, or data that holds some, as dicts and lists."""
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, list | tuple):
        return [plain(item) for item in typing.cast(list[Any], value)]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in typing.cast(dict[str, Any], value).items()}
    return value


T = TypeVar("T")


def build(cls: type[T], data: Mapping[str, Any]) -> T:
    """Return an instance of the dataclass `cls` from its plain data."""
    hints = typing.get_type_hints(cls)
    known = {f.name for f in fields(typing.cast(Any, cls))}
    return cls(**{key: parse(hints[key], value) for key, value in data.items() if key in known})


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
        options = [each for each in inner if each is not types.NoneType]
        return parse(options[0], value) if len(options) == 1 else value
    return value


def parse_key(hint: Any, key: Any) -> Any:
    """Return a key of a mapping: JSON has them as strings."""
    return int(key) if hint is int else key
