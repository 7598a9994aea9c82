"""A document that was read, its limits, and the errors of reading it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from regroup.service.domain.errors import FieldIssue, SpecError

MAX_BYTES = 1024 * 1024
"""Largest document."""
MAX_DEPTH = 64
"""Largest number of nested lists and mappings."""
MAX_VALUES = 20_000
"""Largest number of values, with those that an alias of YAML repeats."""
MAX_INTEGER = 2**63 - 1
"""Largest absolute value of an integer."""
MAX_NUMBER_CHARACTERS = 64
"""Most characters of a number."""


@dataclass(frozen=True)
class Position:
    """A place in a text. Both numbers start at 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class DocumentError(SpecError):
    """A document contains a value that the service does not accept."""


class MalformedDocumentError(DocumentError):
    """A text is not JSON or YAML."""


def refuse(location: Sequence[str | int], at: Position | None, message: str, value: object = None) -> DocumentError:
    """Return the error about a value, with its place in the text."""
    return DocumentError([FieldIssue.at(location, message if at is None else f"{at}: {message}", value)])


def in_file(error: DocumentError, path: object) -> DocumentError:
    """Return the error with the name of the file in front of each message."""
    return type(error)([replace(issue, message=f"{path}: {issue.message}") for issue in error.issues])


def malformed(at: Position, message: str) -> MalformedDocumentError:
    """Return the error about a text that is not JSON or YAML."""
    return MalformedDocumentError([FieldIssue("", f"{at}: {message}")])


def decode(source: str | bytes) -> str:
    """Return the text of a document, without a byte order mark.

    Raises:
        DocumentError: the document is too large.
        MalformedDocumentError: it is not UTF-8.
    """
    if len(source) > MAX_BYTES:
        raise DocumentError([FieldIssue("", f"a document can have at most {MAX_BYTES:,} bytes")])
    if isinstance(source, str):
        return source.removeprefix("\ufeff")
    if source.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")):
        raise malformed(Position(1, 1), "the text is UTF-16 or UTF-32: save it as UTF-8")
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = source[: error.start]
        column = len(before.rpartition(b"\n")[2].decode("utf-8", errors="replace")) + 1
        at = Position(before.count(b"\n") + 1, column)
        raise malformed(at, f"the byte 0x{source[error.start]:02x} is not UTF-8: save the text as UTF-8") from error
