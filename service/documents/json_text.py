"""Strict JSON: RFC 8259 and nothing else, without duplicate keys, within the limits of a document."""

import json
import math
import re
from bisect import bisect_right
from typing import Literal, cast

from regroup.service.documents.document import MAX_DEPTH, MAX_VALUES, Position, decode, malformed
from regroup.service.documents.tree import Places, TreeBuilder

_TOKEN = re.compile(
    r"""[ \t\r\n]*+(?:
      (?P<mark>[{}\[\],:])
    | (?P<text>"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")
    | (?P<number>-?(?:0|[1-9][0-9]*+)(?P<fraction>(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?)(?![0-9A-Za-z_.+-]))
    | (?P<word>(?:true|false|null)(?![0-9A-Za-z_]))
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_WORDS = {"true": True, "false": False, "null": None}
_NOT_FINITE = re.compile(r"-?(?:NaN|Infinity)(?![0-9A-Za-z_])")
_FIRST = re.compile(r"[ \t\r\n]*+(.?)", re.DOTALL)
_Expected = Literal["value", "value or ]", "key or }", "key", ":", ", or ]", ", or }", "end"]
_NAMES: dict[_Expected, str] = {
    "value": "a value",
    "value or ]": "a value or ]",
    "key or }": "a key in double quotes or }",
    "key": "a key in double quotes",
    ":": "a colon",
    ", or ]": "a comma or ]",
    ", or }": "a comma or }",
    "end": "the end of the document",
}


def parse_json(source: str | bytes, places: Places | None = None) -> object:
    """Parse a JSON document.

    Args:
        source: the text.
        places: receives the position of each field.

    Raises:
        MalformedDocumentError: it is not JSON.
        DocumentError: it contains a duplicate key, a number that is not finite, a NUL character or a lone surrogate,
            or exceeds a limit.
    """
    text = decode(source)
    if places is None and (found := _read_plain(text)) is not _UNSURE:
        return found
    return _Parser(text, places).parse()


def _read_plain(text: str) -> object:
    """Read a small document without anything that must be refused, with the fast parser; else return `_UNSURE`."""
    is_small = len(text) <= MAX_VALUES and text.count("{") + text.count("[") <= MAX_DEPTH
    if not is_small or "\\u" in text or "\x00" in text:
        return _UNSURE
    try:
        return _PLAIN.decode(text)
    except ValueError:
        return _UNSURE


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key appears twice")
    return found


def _short_integer(token: str) -> int:
    if len(token) > _SHORT_DIGITS:
        raise ValueError("a number may be too large")
    return int(token)


def _short_float(token: str) -> float:
    if len(token) > _SHORT_DIGITS or not math.isfinite(value := float(token)) or value == 0:
        raise ValueError("a number may be too large or too small")
    return value


def _refuse_constant(token: str) -> object:
    raise ValueError(f"{token} is not JSON")


_UNSURE = object()
_SHORT_DIGITS = 18
"""Every integer of so many characters is below the limit."""
_PLAIN = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_short_integer, parse_float=_short_float, parse_constant=_refuse_constant
)


class _Parser:
    def __init__(self, text: str, places: Places | None) -> None:
        self._text = text
        self._line_starts: list[int] | None = None
        self._builder = TreeBuilder(self._locate, (), places)
        self._closers: list[str] = []
        self._expected: _Expected = "value"

    def parse(self) -> object:
        at = 0
        while True:
            match = _TOKEN.match(self._text, at)
            if match is None:
                raise self._unreadable(at)
            kind, at = cast(str, match.lastgroup), match.end()
            if kind == "fraction":
                kind = "number"
            start, token = match.start(kind), match[kind]
            if kind == "end":
                if self._expected == "end":
                    return self._builder.root
                raise malformed(self._locate(start), f"the text ends, but {_NAMES[self._expected]} is missing")
            if kind == "mark":
                self._read_mark(token, start)
            elif kind == "text":
                self._read_text(cast(str, json.loads(token)) if "\\" in token else token[1:-1], start)
            else:
                self._check(start, token, "value", "value or ]")
                value = _WORDS[token] if kind == "word" else self._builder.number(
                    token, start, is_integer=not match["fraction"]
                )  # fmt: skip
                self._builder.scalar(value, start)
                self._expect_after_value()

    def _read_mark(self, token: str, start: int) -> None:
        match token:
            case "{" | "[":
                self._check(start, token, "value", "value or ]")
                self._builder.open({} if token == "{" else [], start)
                self._closers.append("}" if token == "{" else "]")
                self._expected = "key or }" if token == "{" else "value or ]"
            case "}" | "]":
                allowed: tuple[_Expected, ...] = ("key or }", ", or }") if token == "}" else ("value or ]", ", or ]")
                self._check(start, token, *allowed)
                self._closers.pop()
                self._builder.close(start)
                self._expect_after_value()
            case ":":
                self._check(start, token, ":")
                self._expected = "value"
            case _:
                self._check(start, token, ", or ]", ", or }")
                self._expected = "key" if self._closers[-1] == "}" else "value"

    def _read_text(self, value: str, start: int) -> None:
        self._check(start, '"', "value", "value or ]", "key", "key or }")
        if self._builder.expects_key:
            self._builder.key(value, start)
            self._expected = ":"
        else:
            self._builder.scalar(value, start)
            self._expect_after_value()

    def _expect_after_value(self) -> None:
        if not self._closers:
            self._expected = "end"
        else:
            self._expected = ", or }" if self._closers[-1] == "}" else ", or ]"

    def _check(self, start: int, token: str, *allowed: _Expected) -> None:
        if self._expected not in allowed:
            shown = "a text" if token == '"' else token[:20]
            raise malformed(self._locate(start), f"expected {_NAMES[self._expected]}, but found {shown}")

    def _unreadable(self, at: int) -> Exception:
        first = cast("re.Match[str]", _FIRST.match(self._text, at))
        start, character = first.start(1), first[1]
        if found := _NOT_FINITE.match(self._text, start):
            self._check(start, found[0], "value", "value or ]")
            return self._builder.refuse(start, f"{found[0]} is not a finite number")
        return malformed(self._locate(start), _explain(self._text, start, character))

    def _locate(self, offset: int) -> Position:
        if self._line_starts is None:
            self._line_starts = [0, *(match.end() for match in re.finditer("\n", self._text))]
        line = bisect_right(self._line_starts, offset)
        return Position(line, offset - self._line_starts[line - 1] + 1)


def _explain(text: str, start: int, character: str) -> str:
    match character:
        case '"':
            body = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+').match(text, start)
            wrong = text[body.end() : body.end() + 1] if body else ""
            if wrong == "\\":
                return "a text contains a backslash that starts no escape sequence: write \\\\"
            return "a text has no closing quote, or contains a line break or tab: write \\n or \\t"
        case "'":
            return "texts of JSON need double quotes"
        case "#" | "/":
            return "JSON has no comments"
        case _ if character.isdigit() or character in "+-.":
            return "not a number of JSON: no leading zeros, plus signs, hexadecimal digits or missing digits"
        case _:
            return f"unexpected {character!r}: texts need double quotes; words are true, false and null"
