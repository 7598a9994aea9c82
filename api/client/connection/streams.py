"""Streams of server-sent events: requests, parsing, and reconnection."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import httpx2

from regroup.api.client.connection.contact import Contact, describe_failure
from regroup.api.client.connection.errors import ServerUnreachableError, error_from
from regroup.api.client.connection.requests import (
    CONNECT_TIMEOUT_S,
    EXPECTED_ANSWER_S,
    RETRIED_STATUSES,
    Params,
    Retry,
    without_absent,
)
from regroup.api.schemas.exec import EVENTS, ExecEvent
from regroup.service.domain.errors import ForbiddenError, UnavailableError

T = TypeVar("T")
_HEARTBEAT_S = 15.0
STREAM_TIMEOUT = httpx2.Timeout(3 * _HEARTBEAT_S, connect=CONNECT_TIMEOUT_S)
SILENCE_S = _HEARTBEAT_S + 5.0
"""Silence of an open stream after which a client reports it. The server sends something every 15 s."""
_STABLE_S = 5.0
"""Age of a connection that counts as a success, even if it carried nothing: the next loss begins a new patience."""
_TERMINATED = "the server stops the command within 30 s"


@dataclass(frozen=True)
class EventStream(Generic[T]):
    """A resumable stream."""

    path: str
    parse: Callable[[str], T]
    """Takes the data of one event."""
    params: Params = field(default_factory=dict[str, Any])
    last_event_id: str | None = None
    """Start after this event; None for the start of the stream."""


class Follower(Generic[T]):
    """Reads an `EventStream` to its end over as many connections as necessary."""

    def __init__(
        self, stream: EventStream[T], patience_s: float, server: object, contact: Contact | None = None
    ) -> None:
        self.is_ended = False
        self._stream = stream
        self._last_event_id = stream.last_event_id
        self._retry = Retry(patience_s, contact)
        self._server = server
        self._connecting_s = time.monotonic()
        self._parser = EventParser()

    def connect_options(self) -> dict[str, Any]:
        """Return the arguments of httpx2's `stream` for the next connection."""
        self._parser = EventParser()
        self._connecting_s = time.monotonic()
        self._retry.contact.expect(EXPECTED_ANSWER_S)
        last = self._last_event_id
        return {
            "method": "GET",
            "url": self._stream.path,
            "params": without_absent({**self._stream.params, "follow": True}),
            "headers": {"Accept": "text/event-stream"} | ({} if last is None else {"Last-Event-ID": last}),
            "timeout": STREAM_TIMEOUT,
        }

    def feed(self, chunk: bytes) -> list[T]:
        """Return the items that `chunk` completes."""
        items: list[T] = []
        self._retry.contact.answered()
        self._retry.contact.expect(SILENCE_S)
        if time.monotonic() - self._connecting_s > _STABLE_S:
            self._retry.reset()
        for event in self._parser.feed(chunk):
            if event.kind == "end":
                self.is_ended = True
                break
            if event.kind == "dropped":  # too slow, or without access: the next connection continues, or is refused
                continue
            items.append(self._stream.parse(event.data))
            self._last_event_id = event.id
            self._retry.reset()
        return items

    def check_refusal(self, response: httpx2.Response) -> str:
        """Return the reason to reconnect after a response that is not a success.

        Raises:
            ApiError: The server rejected the request, and a repetition would not help.
        """
        if response.status_code not in RETRIED_STATUSES:
            raise error_from(response)
        return f"HTTP {response.status_code}"

    def reconnect_delay_s(self, reason: object) -> float:
        """Return the delay before the next connection.

        Raises:
            ServerUnreachableError: The patience is exhausted.
        """
        self._retry.contact.done()
        delay_s = self._retry.next_delay_s(describe_failure(reason))
        if delay_s is None:
            failure = describe_failure(reason)
            raise ServerUnreachableError(f"lost the stream {self._stream.path} of {self._server}: {failure}")
        return delay_s

    def close(self) -> None:
        """Stop waiting: the stream ended, or the caller stopped reading it."""
        self._retry.contact.done()


@dataclass(frozen=True)
class ExecCall:
    """A command to run on the node of a rank. It is never sent twice."""

    path: str
    params: Params
    body: dict[str, Any]

    def connect_options(self) -> dict[str, Any]:
        """Return the arguments of httpx2's `stream`."""
        return {
            "method": "POST",
            "url": self.path,
            "params": without_absent(self.params),
            "json": self.body,
            "timeout": STREAM_TIMEOUT,
        }


class ExecReader:
    """Parses the events of a command until it exits."""

    def __init__(self) -> None:
        self.is_ended = False
        self._parser = EventParser()

    def feed(self, chunk: bytes) -> list[ExecEvent]:
        """Return the events that `chunk` completes.

        Raises:
            ForbiddenError: the sender lost its access, and the command ends.
        """
        arrived = self._parser.feed(chunk)
        if (dropped := next((event for event in arrived if event.kind == "dropped"), None)) is not None:
            raise ForbiddenError(f"{json.loads(dropped.data)['detail']}; {_TERMINATED}")
        events = [event for event in arrived if event.kind in EVENTS]
        self.is_ended = any(event.kind == "exit" for event in events)
        return [EVENTS[event.kind].model_validate_json(event.data) for event in events]


def connection_lost(error: httpx2.TransportError | None) -> UnavailableError:
    """Return the error for a command whose connection ended before it exited."""
    reason = "the server closed the stream" if error is None else str(error)
    return UnavailableError(f"connection lost ({reason}); {_TERMINATED}")


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
