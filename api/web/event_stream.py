"""Responses of server-sent events.

`fastapi.sse` formats the events. FastAPI itself sends the headers below only for routes that yield.
"""

from collections.abc import AsyncIterator

from fastapi.sse import EventSourceResponse

KEEPALIVE_S = 15.0
"""Time without an event after which a stream sends a comment, so that proxies do not close the connection."""
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Proxies, nginx included, pass each event on at once and store none."""


def stream_events(frames: AsyncIterator[bytes]) -> EventSourceResponse:
    """Return the response for a stream of formatted events."""
    return EventSourceResponse(frames, headers=_HEADERS)
