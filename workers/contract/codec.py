"""Convert dataclasses to plain JSON data and back, by their type hints. Unknown fields are ignored.

A field whose hint is a union of several dataclasses is written with the name of its class under `type`. The hints of a
class are read once: a supervisor of a large job converts 100,000 records while all ranks wait.
"""

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache, partial
from typing import Any, TypeVar

_TYPE = "type"
_ATOMS = frozenset({int, float, str, bool, bytes, type(None)})
"""Types whose values are plain data already."""
_Parser = Callable[[Any], Any]


def plain(value: Any) -> Any:
    """Return a dataclass, or data that holds some, as dicts and lists."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is list or kind is tuple:
        return [item if type(item) in _ATOMS else plain(item) for item in value]
    if kind is dict:
        return {key: item if type(item) in _ATOMS else plain(item) for key, item in value.items()}
    if (names := _field_names(kind)) is not None:
        return {
            name: item
            if type(item := getattr(value, name)) in _ATOMS
            else _plain_variant(item)
            if is_tagged
            else plain(item)
            for name, is_tagged in names
        }
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, list | tuple):
        return plain(list(typing.cast(list[Any], value)))
    return plain(dict(typing.cast(dict[Any, Any], value))) if isinstance(value, dict) else value


T = TypeVar("T")


def build(cls: type[T], data: Mapping[str, Any]) -> T:
    """Return an instance of the dataclass `cls` from its plain data.

    Raises:
        TypeError: a field without a default is missing.
    """
    form = _form(cls)
    if form.has_own_code or not form.required <= data.keys():
        parsers = _field_parsers(cls)
        return cls(
            **{
                key: value if (parser := parsers[key]) is None else parser(value)
                for key, value in data.items()
                if key in parsers
            }
        )
    # A frozen class sets its fields one by one, which takes three times as long as all the rest.
    values = form.template.copy()
    if data.keys() <= values.keys():
        values.update(data)
    else:
        values.update({key: value for key, value in data.items() if key in values})
    for key, parser in form.parsers:
        if key in data:
            values[key] = parser(data[key])
    for key, factory in form.factories:
        if key not in data:
            values[key] = factory()
    made = object.__new__(cls)
    vars(made).update(values)
    return made


def parse(hint: Any, value: Any) -> Any:
    """Return the value of type `hint` from its plain data."""
    parser = _parser(hint)
    return value if parser is None else parser(value)


def parse_key(hint: Any, key: Any) -> Any:
    """Return a key of a mapping: JSON has them as strings."""
    return int(key) if hint is int else key


@cache
def _field_names(cls: Any) -> tuple[tuple[str, bool], ...] | None:
    """Return the fields of a dataclass, and whether each is tagged with its type; None for another class."""
    if not is_dataclass(cls):
        return None
    hints = _hints(cls)
    return tuple((each.name, len(_variants(hints[each.name])) > 1) for each in fields(cls))


class _Form(typing.NamedTuple):
    """Fields of a dataclass, as `build` needs them."""

    template: dict[str, Any]
    """All fields in their order, with their defaults."""
    required: frozenset[str]
    parsers: tuple[tuple[str, _Parser], ...]
    """Fields whose plain data is not the value."""
    factories: tuple[tuple[str, Callable[[], Any]], ...]
    """Fields whose default is made for each instance."""
    has_own_code: bool
    """True if the class itself must make its instances."""


@cache
def _form(cls: Any) -> _Form:
    every = fields(cls)
    factories = {each.name: each.default_factory for each in every if each.default_factory is not MISSING}
    given = {each.name: each.default for each in every if each.default is not MISSING}
    return _Form(
        {each.name: given.get(each.name) for each in every},
        frozenset(each.name for each in every) - given.keys() - factories.keys(),
        tuple((name, parser) for name, parser in _field_parsers(cls).items() if parser is not None),
        tuple(factories.items()),
        hasattr(cls, "__post_init__") or hasattr(cls, "__slots__") or not all(each.init for each in every),
    )


@cache
def _field_parsers(cls: Any) -> dict[str, _Parser | None]:
    """Return the parser of each field of a dataclass; None: its plain data is the value."""
    return {name: _parser(hint) for name, hint in _hints(cls).items()}


@cache
def _parser(hint: Any) -> _Parser | None:
    """Return the function that parses a value of a type; None: the plain data is the value."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and origin is None:
        if is_dataclass(hint):
            return partial(build, hint)
        return hint if issubclass(hint, StrEnum) else None
    if origin is tuple:
        if len(inner) == 2 and inner[1] is Ellipsis:
            return partial(_parse_items, tuple, _parser(inner[0]))
        return partial(_parse_places, [_parser(kind) for kind in inner])
    if origin in (list, Sequence):
        return partial(_parse_items, list, _parser(inner[0]))
    if origin is dict:
        return partial(_parse_mapping, inner[0], _parser(inner[1]))
    if origin is types.UnionType:
        variants = _variants(hint)
        options = [each for each in inner if each is not types.NoneType]
        if len(variants) > 1:
            return partial(_parse_tagged, variants)
        inner_parser = _parser(options[0]) if len(options) == 1 else None
        return None if inner_parser is None else partial(_parse_optional, inner_parser)
    return None


def _parse_items(kind: Callable[[Any], Any], parser: _Parser | None, value: Any) -> Any:
    return kind(value) if parser is None else kind(map(parser, value))


def _parse_places(parsers: Sequence[_Parser | None], value: Any) -> Any:
    places = zip(parsers, value, strict=True)
    return tuple(item if parser is None else parser(item) for parser, item in places)


def _parse_mapping(key_hint: Any, parser: _Parser | None, value: Any) -> Any:
    if parser is None and key_hint is not int:
        return dict(value)
    return {parse_key(key_hint, key): item if parser is None else parser(item) for key, item in value.items()}


def _parse_tagged(variants: Mapping[str, Any], value: Any) -> Any:
    return None if value is None else build(variants[value[_TYPE]], value)


def _parse_optional(parser: _Parser, value: Any) -> Any:
    return None if value is None else parser(value)


@cache
def _hints(cls: Any) -> dict[str, Any]:
    """Return the hint of each field of a dataclass."""
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls)}


def _variants(hint: Any) -> dict[str, Any]:
    """Return the dataclasses of a union by name."""
    members: tuple[Any, ...] = typing.get_args(hint) if typing.get_origin(hint) is types.UnionType else ()
    return {str(kind.__name__): kind for kind in members if isinstance(kind, type) and is_dataclass(kind)}


def _plain_variant(value: Any) -> Any:
    return {_TYPE: type(value).__name__, **plain(value)} if is_dataclass(value) else plain(value)
