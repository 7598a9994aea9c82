"""End streams whose sender may not read them any more: a token was revoked or expired, or a role was removed."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from fastapi.sse import format_sse_event
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regroup.api.web.open_streams import begins_stream
from regroup.service.domain.errors import UnauthorizedError, UnavailableError
from regroup.service.domain.identity import Identity
from regroup.service.policy.access.decision import is_allowed

INTERVAL_S = 5.0
"""Time between two checks of an open stream."""


class Requirement(Protocol):
    """The condition of a stream while it is open. Its route puts it into `scope["state"]["requirement"]`."""

    def refusal(self, identity: Identity) -> str:
        """Return why the identity may not read the stream any more; empty if it may."""
        ...


@dataclass(frozen=True)
class ProjectPermission:
    """A permission in one project."""

    permission: str
    project: str

    def refusal(self, identity: Identity) -> str:
        """Return why the identity may not read the stream any more; empty if it may."""
        if is_allowed(identity, self.permission, self.project):
            return ""
        return f"{identity.subject} no longer has the permission `{self.permission}` in its project"


class StreamAccess:
    """Middleware that checks the senders of open streams repeatedly.

    Reads `scope["state"]`: `identify`, which the middleware `Guard` sets, and `requirement`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to the app. End its stream with an event `dropped` as soon as its sender lacks access."""
        serving = asyncio.current_task()
        if scope["type"] != "http" or serving is None:
            await self._app(scope, receive, send)
            return
        watch: asyncio.Task[str] | None = None

        async def observed(message: Message) -> None:
            nonlocal watch
            await send(message)
            if message["type"] == "http.response.start" and begins_stream(message):
                watch = asyncio.create_task(_watch(scope, serving))

        try:
            await self._app(scope, receive, observed)
        except asyncio.CancelledError:
            if watch is None or not watch.done() or not watch.result():
                raise
            serving.uncancel()
            event = format_sse_event(data_str=json.dumps({"detail": watch.result()}), event="dropped")
            await send({"type": "http.response.body", "body": event, "more_body": False})
        finally:
            if watch is not None:
                watch.cancel()


async def _watch(scope: Scope, serving: "asyncio.Task[object]") -> str:
    """Wait until the sender lacks access, then cancel the task that serves the stream, and return the reason."""
    identify: Callable[[], Awaitable[Identity]] | None = scope["state"].get("identify")
    while identify is not None:
        await asyncio.sleep(INTERVAL_S)
        if reason := await _refusal(identify, scope["state"].get("requirement")):
            serving.cancel()
            return reason
    return ""


async def _refusal(identify: Callable[[], Awaitable[Identity]], required: Requirement | None) -> str:
    try:
        identity = await identify()
    except UnauthorizedError as error:
        return str(error)
    except UnavailableError:
        return ""  # without the database, what was known remains in effect
    return "" if required is None else required.refusal(identity)
