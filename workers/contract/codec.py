"""Dataclasses to plain JSON data and back, by their type hints. Fields of a newer version are left out."""

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any, TypeVar


def plain(value: Any) -> Any:
    """A dataclass, or data that holds some, as dicts and lists."""
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, list | tuple):
        return [plain(item) for item in typing.cast(list[Any], value)]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in typing.cast(dict[str, Any], value).items()}
    return value


T = TypeVar("T")


def build(cls: type[T], data: Mapping[str, Any]) -> T:
    """An instance of `cls` from what `plain` made of one."""
    hints = typing.get_type_hints(cls)
    known = {f.name for f in fields(typing.cast(Any, cls))}
    return cls(**{key: _typed(hints[key], value) for key, value in data.items() if key in known})


def _typed(hint: Any, value: Any) -> Any:
    origin = typing.get_origin(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return build(hint, value)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint(value)
    if origin is tuple:
        inner = typing.get_args(hint)
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(_typed(inner[0], item) for item in value)
        return tuple(_typed(kind, item) for kind, item in zip(inner, value, strict=True))
    if origin is dict:
        kind = typing.get_args(hint)[1]
        return {key: _typed(kind, item) for key, item in value.items()}
    if origin is types.UnionType and value is not None:
        inner = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
        return _typed(inner[0], value) if len(inner) == 1 else value
    return value
