"""Requests as values, and operations of several requests. A transport executes them.

A function of this package returns a `Request`, or an `Operation`: a generator that yields effects and returns the
result. `Client` and `AsyncClient` execute both with their own transports, so that each request is written only once.
"""

import dataclasses
import json
import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import BaseModel
from pydantic_core import PydanticCustomError

from regroup.api.client.connection.contact import Contact, NoContact, describe_failure
from regroup.api.client.connection.errors import ServerUnreachableError, error_from
from regroup.service.documents.document import MAX_BYTES, MAX_VALUES
from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.spec.types import INSIDE, check_plain_data

T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)
Params = Mapping[str, str | int | bool | Sequence[str] | None]

TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
EXPECTED_ANSWER_S = 5.0
"""Time after which a missing answer is shown to people who watch. The request continues."""
RETRIED_STATUSES = frozenset({429, 502, 503, 504})
_TOO_MANY = 429
_FIRST_DELAY_S = 0.1
_MAX_DELAY_S = 2.0


@dataclass(frozen=True)
class Request(Generic[T]):
    """One HTTP request, and the function that parses its response."""

    method: str
    path: str
    parse: Callable[[httpx2.Response], T]
    params: Params = field(default_factory=dict[str, Any])
    """Parameters that are None, or lists without values, are left out."""
    body: Any = None
    """JSON."""
    content: bytes | None = None
    """Raw bytes instead of JSON."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    accepted_statuses: frozenset[int] = frozenset()
    """Statuses that are parsed like a success."""
    timeout_s: float = TIMEOUT_S
    is_conditional: bool = True
    """True if `Client.under` applies to it, unless its method is GET: it changes an object with a state."""

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of httpx2's `request`."""
        return {
            "params": without_absent(self.params),
            "content": self.content if self.body is None else encode_json(self.body),
            "headers": dict(self.headers) | ({} if self.body is None else {"Content-Type": "application/json"}),
            "timeout": httpx2.Timeout(self.timeout_s, connect=CONNECT_TIMEOUT_S),
        }


@dataclass(frozen=True)
class Sleep:
    """An effect: wait."""

    delay_s: float


@dataclass(frozen=True)
class FileWork:
    """An effect: call a function that reads or writes files. The result of the effect is its return value."""

    call: Callable[[], Any]


Effect: TypeAlias = Request[Any] | Sleep | FileWork
Operation: TypeAlias = Generator[Effect, Any, T]
"""Yields effects, gets their results (a response, for a request), and returns the operation's result."""


@dataclass(frozen=True)
class Page(Generic[T]):
    """Items of one page of a list, and the cursor of the next page, or None at the end."""

    items: Sequence[T]
    next_cursor: str | None


@dataclass(frozen=True)
class Listing(Generic[T]):
    """A list that is read page by page."""

    request_page: Callable[[str], Request[Page[T]]]
    """Takes the cursor of a page."""
    first_cursor: str
    size_parameter: str = "page_size"
    """Name of the parameter with the largest number of items of a page."""

    def page(self, cursor: str | None, size: int | None) -> Request[Page[T]]:
        """Return the request of one page.

        Args:
            cursor: `next_cursor` of the page before; None for the first page.
            size: Largest number of its items; None for the server's default.
        """
        request = self.request_page(cursor or self.first_cursor)
        params = request.params if size is None else {**request.params, self.size_parameter: size}
        return dataclasses.replace(request, params=params)


class Retry:
    """Exponential backoff with jitter, until `patience_s` have passed without success."""

    def __init__(self, patience_s: float, contact: Contact | None = None) -> None:
        self._patience_s = patience_s
        self.contact: Contact = contact or NoContact()
        self.reset()

    def reset(self) -> None:
        """Reset delay and deadline after a success."""
        self._deadline_s = time.monotonic() + self._patience_s
        self._delay_s = _FIRST_DELAY_S

    def next_delay_s(self, reason: str, at_least_s: float = 0.0) -> float | None:
        """Return the delay before the next attempt, or None if the patience is exhausted.

        Args:
            reason: why the last attempt failed, for the observer of the contact.
            at_least_s: shortest delay that the server asks for.
        """
        self.contact.lost(reason, max(0.0, self._deadline_s - time.monotonic()))
        if time.monotonic() + max(self._delay_s, at_least_s) > self._deadline_s:
            return None
        delay_s = max(at_least_s, self._delay_s * random.uniform(0.5, 1.0))
        self._delay_s = min(_MAX_DELAY_S, self._delay_s * 2)
        return delay_s


def encode_json(body: object) -> bytes:
    """Return a body as JSON.

    Raises:
        SpecError: a value is not plain data, or is a number that is not finite. The issue names the field.
    """
    try:
        check_plain_data(body, MAX_VALUES, MAX_BYTES)
        return json.dumps(body, allow_nan=False).encode()
    except PydanticCustomError as error:
        location = (error.context or {}).get(INSIDE, ())
        raise SpecError([FieldIssue.at(location, error.message())]) from error


def send(request: Request[T]) -> Operation[T]:
    """Send a request as a part of an operation."""
    response = yield request
    return request.parse(response)


def send_with_retries(request: Request[Any], retry: Retry, server: object) -> Operation[httpx2.Response]:
    """Repeat a request while the server is unavailable. Each request that it yields is one attempt.

    Raises:
        ApiError: The server rejected the request.
        ServerUnreachableError: The server did not respond within the patience of `retry`.
    """
    while True:
        response: httpx2.Response | None = None
        unreachable: httpx2.TransportError | None = None
        if request.content is None:  # an upload takes as long as its bytes
            retry.contact.expect(EXPECTED_ANSWER_S)
        try:
            response = yield request
        except httpx2.TransportError as error:
            unreachable = error
        finally:
            retry.contact.done()
        if response is not None and (response.is_success or response.status_code in request.accepted_statuses):
            retry.contact.answered()
            return response
        if response is not None and response.status_code not in RETRIED_STATUSES:
            retry.contact.answered()
            raise error_from(response)
        reason = describe_failure(unreachable) if response is None else f"HTTP {response.status_code}"
        delay_s = retry.next_delay_s(reason, _requested_delay_s(response))
        if delay_s is None:
            if response is not None:
                raise error_from(response)
            raise ServerUnreachableError(f"no response from {server}: {reason}") from unreachable
        yield Sleep(delay_s)


def _requested_delay_s(response: httpx2.Response | None) -> float:
    """Return the delay that a server asks for which gets too many requests. After other failures, time decides."""
    requested = "" if response is None or response.status_code != _TOO_MANY else response.headers.get("Retry-After", "")
    return float(requested) if requested.isdecimal() else 0.0


def to_model(model: type[Model]) -> Callable[[httpx2.Response], Model]:
    """Return a function that parses a response as `model`."""
    return lambda response: model.model_validate_json(response.content)


def no_content(response: httpx2.Response) -> None:
    """Parse a response without content."""


def url_path(*parts: object) -> str:
    """Return the path of a resource, with its parts quoted: `/v1/jobs/gpt/events`."""
    return "/v1/" + "/".join(_segment(str(part)) for part in parts)


def _segment(part: str) -> str:
    """Return a part as a segment of a path. A segment of dots would remove the one before it (RFC 3986, 5.2.4)."""
    return part.replace(".", "%2E") if part in (".", "..") else quote(part, safe="")


def without_absent(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that were given. An empty text was given, too: the server refuses it."""
    return {name: value for name, value in params.items() if value is not None and value not in ((), [])}
