"""Reads server-sent events from a stream of bytes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class ServerEvent:
    """One event of a stream."""

    kind: str
    data: str
    id: str


def read_events(chunks: Iterable[bytes]) -> Iterator[ServerEvent]:
    """Events as they are complete; comments are skipped.

    Lines end with a line feed and nothing else: text may hold other characters that Python takes for line ends.
    """
    kind, data, place = "message", list[str](), ""
    for line in _lines(chunks):
        if not line:
            if data:
                yield ServerEvent(kind, "\n".join(data), place)
            kind, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "data":
            data.append(value)
        elif name == "id":
            place = value


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode()
