"""Expand Slurm's hostlist expressions, such as `tux[0-3,12],login`."""

import itertools
import re
from collections.abc import Iterator

from regroup.service.domain.errors import SettingError

MAX_NAMES = 200_000
"""Largest number of names of an expression, and of a file."""
_MAX_GROUPS = 8
_MAX_NAME = 255
_RANGE = re.compile(r"\s*([0-9]{1,18})(?:-([0-9]{1,18}))?\s*")
_NAME = re.compile(r"[^\s\[\]\"'=,\\#;\x00-\x1f\x7f\ud800-\udfff]+")
_SHOWN = 60


class TopologyError(SettingError):
    """An invalid topology file: the place, the problem and the remedy."""


def expand_hostlist(text: str) -> list[str]:
    """Return the names of an expression. Commas, spaces and tabs separate its items; leading zeros are kept.

    Raises:
        TopologyError: a bracket is open, a range or a name is invalid, or there are too many names.
    """
    found: list[str] = []
    for item in _split(text):
        parts = _parts(item)
        count = 1
        for part in parts:
            count *= sum(len(each) for each, _ in part) if isinstance(part, list) else 1
        if len(found) + count > MAX_NAMES:
            raise TopologyError(f"{shortened(text)} expands to more than {MAX_NAMES:,} names, the limit")
        found += _combined(parts)
    return found


def checked_name(name: str) -> str:
    """Return the name of a node, switch or block.

    Raises:
        TopologyError: it has a character that no name has, or is too long.
    """
    if not _NAME.fullmatch(name):
        raise TopologyError(
            f"{shortened(name)} is not a name: names have no spaces, quotes, brackets or any of = , ; # and backslash; "
            'write a list as a[1-4],b, or in quotes as "a[1-4], b"'
        )
    if len(name) > _MAX_NAME:
        raise TopologyError(f"{shortened(name)} has {len(name)} characters; a name has at most {_MAX_NAME}")
    return name


def shortened(text: str) -> str:
    """Return the text in quotes for a message, at most its beginning."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


_Ranges = list[tuple[range, int]]
"""The numbers of a bracket, each with the width of its first number."""


def _split(text: str) -> Iterator[str]:
    """Split at the separators outside of brackets."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if depth not in (0, 1):
            break
        if depth == 0 and (letter == "," or letter.isspace()):
            if item := text[start:at].strip():
                yield item
            start = at + 1
    if depth != 0:
        raise TopologyError(f"{shortened(text)}: a bracket is not closed, or not opened; write a list as a[1-4,7]")
    if item := text[start:].strip(", \t"):
        yield item


def _parts(item: str) -> list[str | _Ranges]:
    """Return the literal texts and the brackets of an item, in its order."""
    parts: list[str | _Ranges] = []
    for number, piece in enumerate(re.split(r"\[([^\]]*)\]", item)):
        if number % 2:
            parts.append(_ranges(item, piece))
        elif piece:
            parts.append(checked_name(piece))
    if len(parts) > 2 * _MAX_GROUPS:
        raise TopologyError(f"{shortened(item)} has more than {_MAX_GROUPS} brackets, the limit")
    return parts


def _ranges(item: str, inner: str) -> _Ranges:
    found: _Ranges = []
    for part in inner.split(","):
        match = _RANGE.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if match is None or last < first:
            raise TopologyError(f"{shortened(item)}: {shortened(part)} must be an integer or a range such as 0-15")
        if last - first >= MAX_NAMES:
            raise TopologyError(f"{shortened(item)}: {shortened(part)} has more than {MAX_NAMES:,} names, the limit")
        found.append((range(first, last + 1), len(match[1])))
    return found


def _combined(parts: list[str | _Ranges]) -> Iterator[str]:
    choices = [[part] if isinstance(part, str) else list(_numbers(part)) for part in parts]
    return (checked_name("".join(chosen)) for chosen in itertools.product(*choices))


def _numbers(ranges: _Ranges) -> Iterator[str]:
    return (f"{number:0{width}}" for numbers, width in ranges for number in numbers)
