"""Read the lines of Slurm's conf files as Slurm does: `Include`, comments, continuation, escapes and quotes."""

import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from regroup.service.policy.topology.hostlist import TopologyError, shortened

MAX_BYTES = 4 * 2**20
"""Largest size of a file with everything that it includes."""
MAX_FILES = 256
MAX_INCLUDE_DEPTH = 16
Reader = Callable[[str], bytes]
"""Return the content of a file.

Raises:
    OSError: the file cannot be read.
"""
_SPACE = " \t\n\v\f\r"
_COMMENT = re.compile(r"(?<!\\)(?:\\\\)*#")
"""The first # that an even number of backslashes precedes."""
_INCLUDE = re.compile(r'\s*include\s+(?:"([^"]*)"|(\S+))(.*)', re.IGNORECASE | re.ASCII | re.DOTALL)
_PAIR = re.compile(r'\s*([A-Za-z0-9_.]+)\s*([-*+/]?)=\s*(?:"([^"]*)"|(\S+))(?=\s|$)', re.ASCII)
_BOMS = {b"\xef\xbb\xbf": "", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


@dataclass(frozen=True)
class Place:
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


@dataclass(frozen=True)
class Statement:
    """One line of a conf file, with the lines that continue it."""

    place: Place
    """First line of the statement."""
    pairs: tuple[tuple[str, str], ...]
    """Keys in lower case, and values."""


def read_statements(file: str, content: str, read: Reader) -> Iterator[Statement]:
    """Yield the statements of a conf file, and of the files that it includes.

    Args:
        file: path of the file.
        content: its text.
        read: reads an included file.

    Raises:
        TopologyError: a line is invalid, or a file cannot be included.
    """
    return _Files(read).statements(file, content, ())


def decode(content: bytes, file: str) -> str:
    """Return the text of a file. Comments can have bytes of another encoding.

    Raises:
        TopologyError: the file is not a text file in UTF-8.
    """
    for mark, encoding in _BOMS.items():
        if content.startswith(mark):
            if encoding:
                raise TopologyError(f"{file}: the file is in {encoding}; save it as UTF-8")
            content = content.removeprefix(mark)
    if (at := content.find(b"\0")) >= 0:
        line = content.count(b"\n", 0, at) + 1
        raise TopologyError(f"{Place(file, line)}: a NUL character; the file must be text in UTF-8")
    return content.decode("utf-8", "surrogateescape")


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line that is not empty with the lines that continue it, and the number of the first one.

    As in Slurm, a comment is removed first, also in quotes. Then an odd number of backslashes at the end continues the
    line, and a remaining backslash makes the next character literal.
    """
    parts: list[str] = []
    first = 1
    for number, physical in enumerate(text.split("\n"), 1):
        if not parts:
            first = number
            if not physical or physical.isspace() or physical[0] == "#":
                continue
        comment = _COMMENT.search(physical)
        line = physical[: comment.end() - 1] if comment else physical
        stripped = line.rstrip(_SPACE)
        if (len(stripped) - len(stripped.rstrip("\\"))) % 2:
            parts.append(stripped[:-1])
            continue
        yield first, _without_escapes("".join([*parts, line]))
        parts = []
    if parts:
        yield first, _without_escapes("".join(parts))


class _Files:
    """The files of one topology, within the limits on their number, depth and size."""

    def __init__(self, read: Reader) -> None:
        self._read = read
        self._count = 0
        self._bytes = 0

    def statements(self, file: str, content: str, above: tuple[str, ...]) -> Iterator[Statement]:
        self._count += 1
        self._bytes += len(content)
        if self._bytes > MAX_BYTES:
            raise TopologyError(f"{file}: the topology has more than {MAX_BYTES // 2**20} MiB, the limit")
        chain = (*above, posixpath.normpath(file))
        for number, line in logical_lines(content):
            place = Place(file, number)
            if re.search(r"[\ud800-\udfff]", line):
                raise TopologyError(f"{place}: bytes that are not UTF-8; save the file as UTF-8")
            if include := _INCLUDE.fullmatch(line):
                yield from self._included(place, include, chain)
            elif pairs := _pairs(place, line):
                yield Statement(place, pairs)

    def _included(self, place: Place, include: re.Match[str], chain: tuple[str, ...]) -> Iterator[Statement]:
        path = include[1] or include[2] or ""
        if include[3].strip(_SPACE) or path.startswith("=") or not path:
            raise TopologyError(f"{place}: Include takes one path after a space: Include /etc/slurm/leafs.conf")
        if "%c" in path:
            raise TopologyError(
                f"{place}: Include {shortened(path)}: %c stands for ClusterName, which is not in this file; write it"
            )
        file = posixpath.normpath(posixpath.join(posixpath.dirname(place.file), path))
        if file in chain:
            raise TopologyError(f"{place}: {' includes '.join([*chain[chain.index(file) :], file])}: a cycle")
        if len(chain) > MAX_INCLUDE_DEPTH:
            raise TopologyError(f"{place}: files include each other {MAX_INCLUDE_DEPTH} deep, the limit")
        if self._count >= MAX_FILES:
            raise TopologyError(f"{place}: more than {MAX_FILES} included files, the limit")
        try:
            content = self._read(file)
        except OSError as error:
            remedy = "correct the path, which is relative to the folder of the file that includes it"
            if re.search(r"[*?\[]", path):
                remedy = "write one Include for each file: *, ? and brackets stand for themselves, as in Slurm"
            problem = f"cannot be read: {error.strerror or error}; {remedy}"
            raise TopologyError(f"{place}: the included file {shortened(file)} {problem}") from error
        yield from self.statements(file, decode(content, file), chain)


def _pairs(place: Place, line: str) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    at = 0
    while match := _PAIR.match(line, at):
        if match[2]:
            raise TopologyError(
                f"{place}: {shortened(match[1])} has {match[2]}=, which a topology does not support; use ="
            )
        found.append((match[1].lower(), match[4] if match[3] is None else match[3]))
        at = match.end()
    if rest := line[at:].strip(_SPACE):
        raise TopologyError(
            f"{place}: {shortened(rest)} is not a list of KEY=VALUE; a value with spaces must be in quotes, and a list "
            'has no spaces without them: Nodes=a[1-4],b or Nodes="a[1-4], b"'
        )
    return tuple(found)


def _without_escapes(line: str) -> str:
    return re.sub(r"\\(.?)", r"\1", line, flags=re.DOTALL)
