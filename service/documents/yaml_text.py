"""Strict YAML: the values of JSON in YAML's syntax.

The reader refuses what versions of YAML read differently (`yes`, `010`, `1:30`, dates), tags, duplicate keys and
several documents. Aliases and merge keys work, within the limits of a document. A plain key is text, as it is written.
"""

import contextlib
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, cast

import yaml

from regroup.service.documents.document import (
    DocumentError,
    MalformedDocumentError,
    Position,
    decode,
    malformed,
    refuse,
)
from regroup.service.documents.json_text import parse_json
from regroup.service.documents.tree import Places, TreeBuilder

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.?(?:inf|nan|infinity)", re.IGNORECASE)
_NOT_PRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_AMBIGUOUS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"yes|Yes|YES|no|No|NO|on|On|ON|Off|OFF"), "a boolean: write true or false, or quote it"),
    (re.compile(r"[-+]?0[xX][0-9a-fA-F_]+"), "a hexadecimal number: write it in decimal, or quote it"),
    (re.compile(r"[-+]?0[oO]?[0-7_]+"), "an octal number: write it in decimal, or quote it"),
    (re.compile(r"[-+]?0[bB][01_]+"), "a binary number: write it in decimal, or quote it"),
    (
        re.compile(r"[-+]?0[0-9_]+(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?"),
        "a number: remove the leading zeros, or quote it",
    ),
    (
        re.compile(r"[-+]?[0-9.][0-9_.]*_[0-9_.]*(?:[eE][-+]?[0-9]+)?"),
        "a number: remove the underscores, or quote it",
    ),
    (
        re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"),
        "a number to base 60: write it in decimal, or quote it",
    ),
    (
        re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}.*)?"),
        "a date: quote it",
    ),
)
"""Plain scalars that versions of YAML read differently, with another reading and the remedy."""


def parse_yaml(
    source: str | bytes,
    untyped: Collection[str] = (),
    inside: Sequence[str] = (),
    places: Places | None = None,
) -> object:
    """Parse a YAML document. An empty one is None.

    Args:
        source: the text.
        untyped: top-level keys whose values have no declared type. There a plain `off` is refused; elsewhere it is the
            text `off`, which fields accept.
        inside: location of the text in a larger document.
        places: receives the position of each field.

    Raises:
        MalformedDocumentError: it is not YAML.
        DocumentError: it contains a value that YAML versions read differently, a tag, a duplicate key, a number that is
            not finite or a NUL character, or exceeds a limit.
    """
    text = decode(source)
    if wrong := _NOT_PRINTABLE.search(text):
        message = f"the character U+{ord(wrong[0]):04X} cannot be in a YAML text: remove it, or write an escape"
        raise malformed(_position(text, wrong.start()), message)
    if text.lstrip()[:1] == "{" and not inside:
        # JSON is YAML, except for characters that are escaped as two surrogates.
        with contextlib.suppress(MalformedDocumentError):
            return parse_json(text, places)
    if places is not None:
        places.clear()
    builder = TreeBuilder(_at, inside, places)
    try:
        for event in _events(text):
            _read(event, builder, untyped)
    except yaml.MarkedYAMLError as error:
        raise _unreadable(text, error) from error
    except yaml.YAMLError as error:
        raise malformed(Position(1, 1), f"not YAML: {error}") from error
    return builder.root


def _events(text: str) -> Iterator[yaml.Event]:
    return cast(Iterator[yaml.Event], yaml.parse(text, Loader=_LOADER))


def _read(event: yaml.Event, builder: TreeBuilder, untyped: Collection[str]) -> None:
    mark: Any = event.start_mark
    if isinstance(event, yaml.DocumentStartEvent) and builder.is_complete:
        raise refuse((), _at(mark), "a second document begins here: write one document per file")
    if isinstance(event, yaml.ScalarEvent | yaml.SequenceStartEvent | yaml.MappingStartEvent) and event.tag is not None:
        tag = event.tag.replace("tag:yaml.org,2002:", "!!")
        raise builder.refuse(mark, f"tags such as {tag} are not supported: remove it")
    if builder.expects_key and not isinstance(event, yaml.ScalarEvent | yaml.MappingEndEvent):
        raise builder.refuse(mark, "a key must be text")
    match event:
        case yaml.MappingStartEvent():
            builder.open({}, mark, event.anchor)
        case yaml.SequenceStartEvent():
            builder.open([], mark, event.anchor)
        case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
            builder.close(mark)
        case yaml.AliasEvent():
            builder.alias(cast(str, event.anchor), mark)
        case yaml.ScalarEvent() if builder.expects_key:
            _read_key(event, builder, mark)
        case yaml.ScalarEvent():
            value = _resolve(event.value, builder, mark, untyped) if event.implicit[0] else event.value
            builder.scalar(value, mark, event.anchor)
        case _:
            pass


def _read_key(event: yaml.ScalarEvent, builder: TreeBuilder, mark: Any) -> None:
    is_plain = event.implicit[0]
    if event.anchor is not None:
        raise builder.refuse(mark, "a key cannot have an anchor")
    if is_plain and event.value == "<<":
        builder.merge()
    elif is_plain and event.value in _NULLS:
        raise builder.refuse(mark, "a key is missing: write it before the colon, in quotes if it is 'null' or '~'")
    else:
        builder.key(event.value, mark)


def _resolve(text: str, builder: TreeBuilder, mark: Any, untyped: Collection[str]) -> object:
    """Return the value of a plain scalar."""
    if text in _NULLS:
        return None
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text) or _FLOAT.fullmatch(text):
        return builder.number(text, mark, is_integer=_INTEGER.fullmatch(text) is not None)
    if _NOT_FINITE.fullmatch(text):
        raise builder.refuse(mark, f"{text} is not a finite number; quote it for text")
    for pattern, reading in _AMBIGUOUS:
        if pattern.fullmatch(text):
            raise builder.refuse(mark, f"{text} is ambiguous, because some readers take it for {reading}")
    if text == "off" and builder.location[:1] and builder.location[0] in untyped:
        raise builder.refuse(mark, "off is ambiguous, because some readers take it for false: write false, or quote it")
    return text


def _at(mark: Any) -> Position:
    return Position(mark.line + 1, mark.column + 1)


def _position(text: str, offset: int) -> Position:
    return Position(text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1)


def _unreadable(text: str, error: yaml.MarkedYAMLError) -> DocumentError:
    mark = error.problem_mark or error.context_mark
    at = Position(1, 1) if mark is None else _at(mark)
    lines = text.splitlines()
    before = lines[at.line - 1][: at.column] if 0 < at.line <= len(lines) else ""
    if "\t" in before and not before.strip():
        return malformed(at, "a tab indents this line: indent with spaces")
    context = f" {error.context}" if error.context else ""
    return malformed(at, f"{error.problem or 'not YAML'}{context}")
