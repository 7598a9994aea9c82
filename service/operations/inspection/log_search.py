"""Search in the stored output of the ranks of a job, in bounded parts that continue after a cursor."""

import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from regroup.service.domain.errors import NotFoundError, UnavailableError
from regroup.service.operations.logs import LogPosition, read_chunk
from regroup.service.ports.cluster import Cluster, LogChunk
from regroup.service.store.rows.records import Generation, JobRow

STREAMS = ("stdout", "stderr")
_CHUNK_BYTES = 2**20
_MAX_BYTES = 64 * 2**20
"""Most bytes that one request reads."""
_MAX_S = 5.0
"""Time after which a request answers with what it has found."""
_MAX_LINE = 2000
"""Most characters of a line in an answer."""
_MAX_UNREAD = 20


@dataclass(frozen=True)
class LogQuery:
    """Text to find, and the output in which to search."""

    text: str
    rank: int | None = None
    generation: int | None = None
    stream: str | None = None
    is_case_sensitive: bool = False
    limit: int = 100

    def finds(self, line: str) -> int:
        """Return the place of the text in a line, or -1."""
        if self.is_case_sensitive:
            return line.find(self.text)
        return line.lower().find(self.text.lower())


@dataclass(frozen=True, order=True)
class LogPlace:
    """A position in the output of one rank; ordered by generation, rank, stream and offset."""

    generation: int
    rank: int
    stream: str
    offset: int = 0

    @classmethod
    def parse(cls, text: str) -> "LogPlace":
        """Parse `GENERATION.RANK.STREAM.OFFSET`; raise ValueError if it is not valid."""
        parts = text.split(".")
        numbers = [parts[at] for at in (0, 1, 3)] if len(parts) == 4 else []
        if not numbers or parts[2] not in STREAMS or not all(each.isdecimal() and len(each) < 16 for each in numbers):
            raise ValueError(f"cursor {text!r} is not one that a search returned; begin without a cursor")
        return cls(int(parts[0]), int(parts[1]), parts[2], int(parts[3]))

    def __str__(self) -> str:
        return f"{self.generation}.{self.rank}.{self.stream}.{self.offset}"


@dataclass(frozen=True)
class LogMatch:
    """A line that contains the text."""

    generation: int
    rank: int
    stream: str
    offset: int
    """Offset of the first byte of the line."""
    line: str
    """The line, or the part of a long line around the match."""


@dataclass
class LogMatches:
    """Lines that contain the text."""

    matches: list[LogMatch] = field(default_factory=list[LogMatch])
    next: LogPlace | None = None
    """Place at which a later request continues; None if all is searched."""
    searched_bytes: int = 0
    unread: list[str] = field(default_factory=list[str])
    """Outputs that could not be read, and why."""


async def search_log(
    cluster: Cluster,
    job: JobRow,
    generations: Sequence[Generation],
    query: LogQuery,
    after: LogPlace | None,
    clock: Callable[[], float] = time.monotonic,
) -> LogMatches:
    """Return the lines with a text, oldest generation first, at most `query.limit` of them.

    Args:
        generations: all generations of the job.
        after: place at which the search begins.
    """
    found, end_s = LogMatches(), clock() + _MAX_S
    for place in _places(generations, query, after):
        if clock() > end_s or found.searched_bytes >= _MAX_BYTES:
            found.next = place
            return found
        try:
            async for lines in _read_lines(cluster, job, place, found):
                for offset, line in lines:
                    if len(found.matches) == query.limit:
                        found.next = LogPlace(place.generation, place.rank, place.stream, offset)
                        return found
                    if (at := query.finds(line)) >= 0:
                        found.matches.append(
                            LogMatch(place.generation, place.rank, place.stream, offset, _around(line, at))
                        )
                    following = offset + _size(line) + 1
                    if clock() > end_s or found.searched_bytes >= _MAX_BYTES:
                        found.next = LogPlace(place.generation, place.rank, place.stream, following)
                if found.next is not None:
                    return found
        except NotFoundError:
            continue  # the rank printed nothing there, or its output was lost with its node
        except UnavailableError as error:
            if len(found.unread) < _MAX_UNREAD:
                found.unread.append(f"{place.stream} of rank {place.rank} in generation {place.generation}: {error}")
    return found


def _places(generations: Sequence[Generation], query: LogQuery, after: LogPlace | None) -> Iterator[LogPlace]:
    """Yield the beginnings of all outputs in which to search, in order."""
    for generation in sorted(generations, key=lambda each: each.number):
        if query.generation not in (None, generation.number):
            continue
        ranks = range(generation.world_size) if query.rank is None else (query.rank,)
        for rank in ranks:
            for stream in sorted(STREAMS) if query.stream is None else (query.stream,):
                place = LogPlace(generation.number, rank, stream)
                if after is None or place > after:
                    yield place
                elif (place.generation, place.rank, place.stream) == (after.generation, after.rank, after.stream):
                    yield after


async def _read_lines(
    cluster: Cluster, job: JobRow, place: LogPlace, found: LogMatches
) -> AsyncGenerator[list[tuple[int, str]]]:
    """Yield lines with their offsets, part by part. A line longer than a part counts as several."""
    rest, rest_offset, offset = "", place.offset, place.offset
    while True:
        position = LogPosition(place.generation, offset)
        chunk = await read_chunk(cluster, job, position, place.rank, place.stream, _CHUNK_BYTES)
        found.searched_bytes += max(0, chunk.next_offset - chunk.offset)
        if chunk.offset > offset:  # a part of the output is not kept
            rest, rest_offset = "", chunk.offset
        is_last = chunk.next_offset <= offset or chunk.complete
        lines = (rest + _text_of(chunk, offset)).split("\n")
        rest = "" if is_last else lines.pop()
        placed, at = list[tuple[int, str]](), rest_offset
        for line in lines:
            placed.append((at, line))
            at += _size(line) + 1
        if placed[-1:] == [(at - 1, "")]:
            placed.pop()  # the text ended with a line break
        yield placed
        if is_last:
            return
        offset = chunk.next_offset
        # Bytes that are not UTF-8 are replaced by a longer character: each part begins at a known offset again.
        rest_offset = offset - _size(rest)
        if len(rest) > _CHUNK_BYTES:
            yield [(rest_offset, rest)]
            rest, rest_offset = "", offset


def _text_of(chunk: LogChunk, requested: int) -> str:
    """Return the output without the note about a part that is not kept."""
    return chunk.data if chunk.offset <= requested else chunk.data.partition("]\n")[2]


def _size(text: str) -> int:
    return len(text.encode())


def _around(line: str, at: int) -> str:
    """Return a line, or the part of a long line around a place."""
    if len(line) <= _MAX_LINE:
        return line
    begin = max(0, min(at - _MAX_LINE // 4, len(line) - _MAX_LINE))
    return line[begin : begin + _MAX_LINE]
