"""Responses of server-sent events.

`fastapi.sse` formats the events. FastAPI itself sends the headers below only for routes that yield.
"""

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Annotated, TypeVar

from fastapi import Header
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from starlette.exceptions import HTTPException

from regroup.service.operations.streams.follower_queue import FollowerDroppedError
from regroup.service.operations.streams.followers import IDLE_S

KEEPALIVE_S = 15.0
"""Time without an event after which a stream sends a comment, so that proxies do not close the connection."""
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Proxies, nginx included, pass each event on at once and store none."""
LastEventId = Annotated[str | None, Header(max_length=100, description="Resume the stream after this id")]
T = TypeVar("T")


def stream_events(frames: AsyncIterator[bytes]) -> EventSourceResponse:
    """Return the response for a stream of formatted events."""
    return EventSourceResponse(frames, headers=_HEADERS)


async def frames_of(items: AsyncGenerator[T | None], to_frame: Callable[[T], bytes | None]) -> AsyncGenerator[bytes]:
    """Yield the frames of items, with comments while there is none, and an event `end` after the last one.

    Args:
        items: yields None while there is no new item.
        to_frame: formats an item; None leaves it out.
    """
    last_sent_s = time.monotonic()
    yield KEEPALIVE_COMMENT  # sends the headers now, not with the first event
    async with aclosing(items):
        try:
            async for item in items:
                frame = None if item is None else to_frame(item)
                if frame is None:
                    if time.monotonic() - last_sent_s < KEEPALIVE_S - IDLE_S:
                        continue
                    frame = KEEPALIVE_COMMENT
                yield frame
                last_sent_s = time.monotonic()
        except FollowerDroppedError as error:
            yield format_sse_event(data_str=json.dumps({"detail": str(error)}), event="dropped")
            return
    yield format_sse_event(data_str="{}", event="end")


def resume_position(last_event_id: str | None, after: int) -> int:
    """Return the number after which a stream begins: that of `Last-Event-ID` if a client resumes, else `after`.

    Raises:
        HTTPException: 400, the id is none of the stream.
    """
    if last_event_id is None:
        return after
    if not last_event_id.isdecimal() or len(last_event_id) > 15:
        raise HTTPException(400, f"Last-Event-ID {last_event_id!r} is not an id of this stream")
    return int(last_event_id)
