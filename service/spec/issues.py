"""Issues of invalid fields, from the errors of the validation. All messages about fields are written here."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from pydantic import ValidationError

from regroup.service.domain.errors import FieldIssue
from regroup.service.spec.types import FORMS, INSIDE

Location = tuple[str | int, ...]
_MAX_WHOLE = 1e15
"""Size below which a whole number of a bound is shown with all digits."""
_MAX_SHOWN = 120
"""Most characters of a value in a message."""
_MESSAGES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "missing": lambda _: "is required",
    "extra_forbidden": lambda _: "unknown field",
    "int_type": lambda _: "must be an integer",
    "int_parsing": lambda _: "must be an integer",
    "int_parsing_size": lambda _: "is an integer with too many digits",
    "int_from_float": lambda _: "must be an integer",
    "float_type": lambda _: "must be a number",
    "float_parsing": lambda _: "must be a number",
    "finite_number": lambda _: "must be a finite number",
    "bool_type": lambda _: "must be true or false",
    "bool_parsing": lambda _: "must be true or false",
    "string_type": lambda _: "must be text: quote it if it looks like a number or a boolean",
    "bytes_type": lambda _: "must be text",
    "list_type": lambda _: "must be a list",
    "tuple_type": lambda _: "must be a list",
    "dict_type": lambda _: "must be a mapping",
    "model_type": lambda _: "must be a mapping of fields",
    "model_attributes_type": lambda _: "must be a mapping of fields",
    "none_required": lambda _: "must be null",
    "greater_than": lambda about: f"must be > {_number(about['gt'])}",
    "greater_than_equal": lambda about: f"must be ≥ {_number(about['ge'])}",
    "less_than": lambda about: f"must be < {_number(about['lt'])}",
    "less_than_equal": lambda about: f"must be ≤ {_number(about['le'])}",
    "multiple_of": lambda about: f"must be a multiple of {_number(about['multiple_of'])}",
    "string_too_short": lambda about: f"must have at least {_count(about['min_length'], 'character')}",
    "string_too_long": lambda about: f"must have at most {_count(about['max_length'], 'character')}",
    "bytes_too_long": lambda about: f"must have at most {_count(about['max_length'], 'byte')}",
    "too_short": lambda about: f"must have at least {_count(about['min_length'], 'item')}",
    "too_long": lambda about: f"must have at most {_count(about['max_length'], 'item')}",
    "string_pattern_mismatch": lambda about: FORMS.get(about["pattern"], f"must match {about['pattern']}"),
    "string_unicode": lambda _: "must be valid Unicode",
    "literal_error": lambda about: f"must be {about['expected']}",
    "enum": lambda about: f"must be {about['expected']}",
    "union_tag_invalid": lambda about: f"must be one of {about['expected_tags']}",
    "union_tag_not_found": lambda about: f"{about['discriminator'].strip(chr(39))} is required",
    "recursion_loop": lambda _: "contains itself",
}
"""Kind of error → message, from the error's context."""
_PREFIX = re.compile(r"^(?:Value error, |Assertion failed, )?(?:Input should(?: be)?|Value should(?: be)?)?\s*")


def issues_at(place: str, issues: Iterable[FieldIssue]) -> list[FieldIssue]:
    """Return issues of a document with its place in front of their paths. An issue of the whole has the place alone."""
    return [replace(each, path=f"{place}: {each.path}" if each.path else place) for each in issues]


def find_issues(error: ValidationError, data: object, prefix: Location = ()) -> list[FieldIssue]:
    """Return one issue per invalid field of `data`.

    Args:
        error: the error of its validation.
        data: the data that was validated.
        prefix: location of the data in the whole document.
    """
    return issues_of(cast(Sequence[Mapping[str, Any]], error.errors(include_url=False)), data, prefix)


def issues_of(errors: Sequence[Mapping[str, Any]], data: object, prefix: Location = ()) -> list[FieldIssue]:
    """Return one issue per invalid field, from errors as pydantic lists them. Alternatives of a field are joined."""
    messages: dict[Location, list[str]] = {}
    values: dict[Location, object] = {}
    for item in errors:
        where = prefix + _own_location(item, data) + tuple((item.get("ctx") or {}).get(INSIDE, ()))
        messages.setdefault(where, []).append(describe_error(item))
        values.setdefault(where, item.get("input"))
    return [FieldIssue.at(where, _join(each), _simple(values[where])) for where, each in messages.items()]


def describe_error(item: Mapping[str, Any]) -> str:
    """Return the message of one error as pydantic lists it."""
    if item["type"] == "missing" and item["loc"] and isinstance(item["loc"][-1], int):
        return "must have more items"
    is_own_text = item["type"] == "missing" and item["msg"] != "Field required"
    if item["type"] == "int_type" and isinstance(text := item.get("input"), str) and text.isdecimal():
        return "must be an integer, not text: remove the quotes"
    write = None if is_own_text else _MESSAGES.get(str(item["type"]))
    if write is not None:
        return write(cast(Mapping[str, Any], item.get("ctx") or {}))
    message = str(item["msg"])
    if match := _PREFIX.match(message):
        rest = message[match.end() :]
        return f"must be {rest}" if "should" in match[0] else rest
    return message


def _own_location(item: Mapping[str, Any], data: object) -> Location:
    """Return the location of an error as the user wrote it: without the parts that name members of a union."""
    found: list[str | int] = []
    parts, at = cast(Sequence[str | int], item["loc"]), data
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        if found == ["workload"] and number == 1 and isinstance(at, Mapping) and at.get("kind") == part:
            continue  # the kind of the workload, which is also the name of a field: function
        if isinstance(at, Mapping) and part in at:
            found.append(part)
            at = cast(Mapping[Any, object], at)[part]
        elif isinstance(at, Sequence) and not isinstance(at, str | bytes) and isinstance(part, int) and part < len(at):
            found.append(part)
            at = cast(Sequence[object], at)[part]
        elif is_last and isinstance(part, str) and (item["type"] == "missing" or part == _absent_field(item)):
            found.append(part)
    return tuple(found)


def _absent_field(item: Mapping[str, Any]) -> str | None:
    """Return the field of an error about a default value, which the data does not contain."""
    parts = cast(Sequence[str | int], item["loc"])
    return str(parts[-1]) if len(parts) == 1 else None


def _join(messages: Sequence[str]) -> str:
    first, *others = dict.fromkeys(messages)
    alternatives = [first, *(each.removeprefix("must be ").removeprefix("must ") for each in others)]
    return ", or ".join(alternatives) if first.startswith("must") else "; ".join(dict.fromkeys(messages))


def _simple(value: object) -> object:
    """Return a value to show; None for a list or mapping, whose parts are shown on their own, and for a huge number."""
    if isinstance(value, str):
        return value if len(value) <= _MAX_SHOWN else value[:_MAX_SHOWN] + "…"
    is_small = isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 2**63)
    return value if is_small else None


def _number(value: object) -> str:
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < _MAX_WHOLE):
        return f"{value:,.0f}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
