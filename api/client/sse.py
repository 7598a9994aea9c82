"""A parser of server-sent events."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ServerEvent:
    """One event of a stream."""

    kind: str
    data: str
    id: str


class EventParser:
    """Parses a stream in chunks of any size. Comments are skipped.

    Lines end with a line feed only: text may contain other characters that Python treats as line ends.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._kind = "message"
        self._data: list[str] = []
        self._id = ""

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the events that `chunk` completes."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [event for line in lines if (event := self._parse_line(line.decode())) is not None]

    def _parse_line(self, line: str) -> ServerEvent | None:
        if not line:
            event = ServerEvent(self._kind, "\n".join(self._data), self._id) if self._data else None
            self._kind, self._data = "message", []
            return event
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._kind = value
        elif name == "data":
            self._data.append(value)
        elif name == "id":
            self._id = value
        return None
