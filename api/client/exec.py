"""The client's side of `exec`: one request, whose events come as long as the command runs."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import httpx2

from regroup.api.client.sse import read_events
from regroup.api.schemas.exec import EVENTS, ExecEvent
from regroup.service.domain.errors import UnavailableError

Open = Callable[[], AbstractContextManager[httpx2.Response]]


def events(open_stream: Open, refused: Callable[[httpx2.Response], Exception]) -> Iterator[ExecEvent]:
    """Events until the command has ended. Closing the iterator early ends the command.

    Raises:
        UnavailableError: the server does not answer, or went away; the command is ended within half a minute then.
    """
    try:
        with open_stream() as answer:
            if not answer.is_success:
                answer.read()
                raise refused(answer)
            for event in read_events(answer.iter_bytes()):
                if event.kind in EVENTS:
                    yield EVENTS[event.kind].model_validate_json(event.data)
                if event.kind == "exit":
                    return
    except httpx2.TransportError as error:
        raise UnavailableError(f"the connection broke off: {error}; what ran is ended within half a minute") from error
    raise UnavailableError("the server went away; what ran is ended within half a minute")
