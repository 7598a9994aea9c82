"""End the event streams that are open when the server stops. Their clients reconnect to the next server.

Without this, uvicorn waits for the streams, cancels them, and logs each as an error with its traceback.
"""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_STREAM = b"text/event-stream"


class OpenStreams:
    """The requests whose response is an event stream."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()
        self.is_ending = False
        """True once the server stops."""

    def end(self) -> None:
        """End all streams, also those that begin from now on."""
        self.is_ending = True
        for task in self._tasks:
            task.cancel()

    def add(self, task: asyncio.Task[object]) -> None:
        """Add the task that serves a stream."""
        self._tasks.add(task)
        if self.is_ending:
            task.cancel()

    def discard(self, task: asyncio.Task[object]) -> None:
        """Remove a task whose request has ended."""
        self._tasks.discard(task)


class EndStreams:
    """Middleware that completes the response of a stream that `OpenStreams.end` cancelled."""

    def __init__(self, app: ASGIApp, streams: OpenStreams) -> None:
        self._app, self._streams = app, streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        if scope["type"] != "http" or task is None:
            await self._app(scope, receive, send)
            return
        is_stream = False

        async def observed(message: Message) -> None:
            nonlocal is_stream
            await send(message)
            if message["type"] == "http.response.start" and begins_stream(message):
                is_stream = True
                self._streams.add(task)

        try:
            await self._app(scope, receive, observed)
        except asyncio.CancelledError:
            if not self._streams.is_ending:
                raise
            if is_stream:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._streams.discard(task)


def begins_stream(start: Message) -> bool:
    """Return True if this start of a response begins an event stream."""
    return any(name.lower() == b"content-type" and value.startswith(_STREAM) for name, value in start["headers"])
