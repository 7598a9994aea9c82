"""Wire models of the output of several ranks: lines that a search finds, and the end of each output."""

from regroup.api.schemas.history import LogPiece
from regroup.api.schemas.wire import Wire


class LogMatch(Wire):
    """A line of output that contains the text."""

    generation: int
    """Generation of the rank."""
    rank: int
    """Number of the rank."""
    stream: str
    """`stdout` or `stderr`."""
    offset: int
    """Offset of the first byte of the line, for `GET …/logs`. It may be later than exact if the output has bytes that
    are not UTF-8."""
    line: str
    """The line; of a line above 2,000 characters the part around the text."""


class LogMatches(Wire):
    """A page of lines that contain the text."""

    matches: list[LogMatch]
    """Lines, ordered by generation, rank, stream and offset."""
    next_cursor: str | None
    """Value of `cursor` with which the search continues; null if all output was searched."""
    searched_bytes: int
    """Bytes of output that this request searched."""
    unread: list[str]
    """Outputs that could not be read, and why; at most 20."""


class LogPieceList(Wire):
    """The end of the output of several ranks."""

    pieces: list[LogPiece]
    """Pieces, ordered by rank and output."""
