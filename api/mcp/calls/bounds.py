"""Bounds of answers: long lists, mappings and texts are cut, and the answer names what it leaves out. Pure."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

MAX_BYTES = 48 * 1024
"""Largest answer, as JSON."""
_REST_BYTES = 8 * 1024
"""Space for the other fields of an answer with a text."""
_MAX_NOTES = 20
_MAX_DEPTH = 24


@dataclass(frozen=True)
class Limits:
    """Limits of one part of an answer."""

    items: int
    """Entries of a list or mapping."""
    characters: int
    """Characters of a text."""


LEVELS: Sequence[Limits] = (
    Limits(200, 40_000), Limits(100, 8000), Limits(50, 4000), Limits(20, 2000), Limits(10, 1000), Limits(5, 400),
    Limits(2, 150), Limits(1, 60),
)  # fmt: skip
"""Limits, the widest first. An answer gets the first that make it small enough."""


def bound(value: Any, max_bytes: int = MAX_BYTES) -> tuple[Any, list[str]]:
    """Return an answer within the bounds, and what it leaves out, for people.

    Args:
        value: plain data.
        max_bytes: largest size as JSON. Data of very many fields may be larger at the narrowest limits.
    """
    cut: Any = value
    notes: list[str] = []
    for limits in LEVELS:
        notes = []
        cut = _cut(value, limits, "", notes, _MAX_DEPTH)
        if size_of(cut) <= max_bytes:
            break
    more = len(notes) - _MAX_NOTES
    return cut, notes[:_MAX_NOTES] + ([f"and {more} more"] if more > 0 else [])


def size_of(value: Any) -> int:
    """Return the size of plain data as JSON, in bytes."""
    return len(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


def fits(text: str) -> bool:
    """Return True if an answer with this text keeps all of it. Control characters are longer in JSON."""
    return len(text) <= LEVELS[0].characters and size_of(text) <= MAX_BYTES - _REST_BYTES


def _cut(value: Any, limits: Limits, path: str, notes: list[str], depth: int) -> Any:
    if isinstance(value, str):
        if len(value) <= limits.characters:
            return value
        notes.append(f"{path or 'text'}: {len(value)} characters, the first {limits.characters} are shown")
        return value[: limits.characters]
    if isinstance(value, dict | list) and depth == 0:
        notes.append(f"{path}: the content is nested too deeply")
        return {} if isinstance(value, dict) else []
    if isinstance(value, dict):
        entries = cast(dict[str, Any], value)
        _note(len(entries), limits, path, notes)
        return {
            name: _cut(entry, limits, _join(path, name), notes, depth - 1)
            for name, entry in _first(entries.items(), limits, is_record=len(entries) <= _RECORD_FIELDS)
        }
    if isinstance(value, list):
        items = cast(list[Any], value)
        _note(len(items), limits, path, notes, is_list=True)
        return [_cut(item, limits, f"{path}[{at}]", notes, depth - 1) for at, item in enumerate(items[: limits.items])]
    return value


_RECORD_FIELDS = 60
"""Mappings with at most this number of entries may be records, whose fields stay, because the schema requires them."""


def _first(entries: Any, limits: Limits, *, is_record: bool) -> Iterator[tuple[str, Any]]:
    return iter(entries) if is_record else islice(entries, limits.items)


def _note(count: int, limits: Limits, path: str, notes: list[str], *, is_list: bool = False) -> None:
    if count > limits.items and (is_list or count > _RECORD_FIELDS):
        notes.append(f"{path or 'answer'}: {count} entries, the first {limits.items} are shown")


def _join(path: str, name: str) -> str:
    shown = name if len(name) <= 60 else name[:60] + "…"
    return f"{path}.{shown}" if path else shown
