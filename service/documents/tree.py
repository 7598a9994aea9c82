"""Assemble values from the events of a parser, within the limits of a document. Never recursive."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from regroup.service.documents.document import (
    MAX_DEPTH,
    MAX_INTEGER,
    MAX_NUMBER_CHARACTERS,
    MAX_VALUES,
    DocumentError,
    Position,
    refuse,
)

Locate = Callable[[Any], Position]
"""Returns the position of a mark of the parser."""
Places = dict[tuple[str | int, ...], Position]
"""Location of a field → its position in the text."""
_NO_KEY = object()


@dataclass(frozen=True)
class Anchor:
    """A value that aliases repeat."""

    value: object
    values: int
    """Number of values in it, with itself."""
    height: int
    """Number of nested lists and mappings in it, with itself."""


@dataclass
class _Open:
    """A list or mapping whose end was not read yet."""

    items: dict[str, object] | list[object]
    start: int
    """Number of values before it."""
    anchor: str | None
    key: object = _NO_KEY
    is_merge: bool = False
    """True if the next value is merged into the mapping."""
    keys: dict[str, Any] = field(default_factory=dict[str, Any])
    """Key → its mark."""
    merged: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    height: int = 1


class TreeBuilder:
    """Builds lists, mappings and scalars from events, and refuses what exceeds a limit.

    Args:
        locate: returns the position of a mark.
        inside: location of the root in a larger document.
        places: receives the position of each key and list item.
    """

    def __init__(self, locate: Locate, inside: Sequence[str] = (), places: Places | None = None) -> None:
        self._locate, self._inside, self._places = locate, inside, places
        self._open: list[_Open] = []
        self._values = 0
        self._anchors: dict[str, Anchor] = {}
        self._unfinished: set[str] = set()
        self.root: object = None
        self.is_complete = False

    @property
    def location(self) -> list[str | int]:
        """Path of the value that comes next."""
        found: list[str | int] = [*self._inside]
        for each in self._open:
            if isinstance(each.items, list):
                found.append(len(each.items))
            elif each.key is not _NO_KEY:
                found.append(cast(str, each.key))
        return found

    @property
    def expects_key(self) -> bool:
        """True if the next scalar is a key."""
        top = self._open[-1] if self._open else None
        return top is not None and isinstance(top.items, dict) and top.key is _NO_KEY and not top.is_merge

    def refuse(self, mark: Any, message: str, value: object = None) -> DocumentError:
        """Return the error about the value that comes next."""
        return refuse(self.location, self._locate(mark), message, value)

    def open(self, items: dict[str, object] | list[object], mark: Any, anchor: str | None = None) -> None:
        """Begin a list or mapping."""
        if len(self._open) >= MAX_DEPTH:
            raise self.refuse(mark, f"lists and mappings can be nested at most {MAX_DEPTH} levels deep")
        self._record(mark)
        self._count(1, mark)
        if anchor is not None:
            self._anchors.pop(anchor, None)
            self._unfinished.add(anchor)
        self._open.append(_Open(items, self._values - 1, anchor))

    def close(self, mark: Any) -> None:
        """End the innermost list or mapping."""
        top = self._open.pop()
        if isinstance(top.items, dict):
            for name, value in (item for source in top.merged for item in source.items()):
                top.items.setdefault(name, value)
        if top.anchor is not None:
            self._unfinished.discard(top.anchor)
            self._anchors[top.anchor] = Anchor(top.items, self._values - top.start, top.height)
        self._put(top.items, mark, top.height)

    def key(self, name: str, mark: Any) -> None:
        """Read the key of the next value."""
        top = self._open[-1]
        self._check_text(name, mark)
        if name in top.keys:
            before = self._locate(top.keys[name])
            top.key = name
            raise self.refuse(mark, f"the key appears twice in one mapping; the first is at {before}: remove one")
        top.keys[name] = mark
        top.key = name
        self._record(mark)

    def merge(self) -> None:
        """Read YAML's key `<<`: the next value is a mapping, or a list of mappings, to merge."""
        self._open[-1].is_merge = True

    def scalar(self, value: object, mark: Any, anchor: str | None = None) -> None:
        """Read a scalar."""
        self._record(mark)
        self._count(1, mark)
        if isinstance(value, str):
            self._check_text(value, mark)
        if anchor is not None:
            self._anchors[anchor] = Anchor(value, 1, 0)
        self._put(value, mark, 0)

    def alias(self, name: str, mark: Any) -> None:
        """Repeat the value of an anchor."""
        self._record(mark)
        if name in self._unfinished:
            raise self.refuse(mark, f"*{name} is inside the value that it repeats")
        found = self._anchors.get(name)
        if found is None:
            raise self.refuse(mark, f"*{name} repeats a value, but no &{name} is before it")
        if len(self._open) + found.height > MAX_DEPTH:
            raise self.refuse(mark, f"with *{name}, lists and mappings are nested more than {MAX_DEPTH} levels deep")
        self._count(found.values, mark)
        self._put(_copy(found.value), mark, found.height)

    def number(self, text: str, mark: Any, *, is_integer: bool) -> int | float:
        """Return the value of a number; refuse one that is too long, too large or not finite."""
        if len(text) > MAX_NUMBER_CHARACTERS:
            raise self.refuse(mark, f"a number can have at most {MAX_NUMBER_CHARACTERS} characters, not {len(text)}")
        if is_integer:
            value = int(text)
            if abs(value) > MAX_INTEGER:
                raise self.refuse(mark, f"an integer must be between -{MAX_INTEGER} and {MAX_INTEGER}", value)
            return value
        number = float(text)
        if math.isinf(number):
            raise self.refuse(mark, f"the number {text} is too large: the largest is about 1.8e308")
        if number == 0 and any(digit in "123456789" for digit in text.lower().partition("e")[0]):
            raise self.refuse(mark, f"the number {text} is too small and would be read as 0: write 0")
        return number

    def _record(self, mark: Any) -> None:
        if self._places is not None:
            self._places.setdefault(tuple(self.location), self._locate(mark))

    def _put(self, value: object, mark: Any, height: int) -> None:
        if not self._open:
            self.root, self.is_complete = value, True
            return
        top = self._open[-1]
        top.height = max(top.height, height + 1)
        if isinstance(top.items, list):
            top.items.append(value)
        elif top.is_merge:
            top.merged += self._mappings(value, mark)
            top.is_merge = False
        else:
            top.items[cast(str, top.key)] = value
            top.key = _NO_KEY

    def _mappings(self, value: object, mark: Any) -> list[dict[str, object]]:
        given = cast(list[object], value) if isinstance(value, list) else [value]
        if not all(isinstance(each, dict) for each in given):
            raise self.refuse(
                mark, "<< merges a mapping or a list of mappings, such as *name; quote it for a plain key"
            )
        return cast(list[dict[str, object]], given)

    def _count(self, values: int, mark: Any) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            raise self.refuse(mark, f"a document can have at most {MAX_VALUES:,} values, with all repetitions")

    def _check_text(self, text: str, mark: Any) -> None:
        if "\x00" in text:
            raise self.refuse(mark, "text must not contain the NUL character")
        if not text.isascii() and any("\ud800" <= each <= "\udfff" for each in text):
            raise self.refuse(mark, "text must be valid Unicode: it contains a lone surrogate")


def _copy(value: object) -> object:
    """Return a copy, so that a change of one repetition does not change the others. At most `MAX_DEPTH` deep."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in cast(dict[str, object], value).items()}
    if isinstance(value, list):
        return [_copy(item) for item in cast(list[object], value)]
    return value
