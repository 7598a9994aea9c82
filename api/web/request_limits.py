"""Limits of requests: the time for a body, the rate of an identity, and the number of its streams and uploads."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regroup.api.web.http import UPLOADS
from regroup.api.web.problems import problem
from regroup.service.domain.identity import Identity, IdentityKind
from regroup.service.domain.limits import Limit
from regroup.service.policy.access.rate import Bucket, RateLimit, acquire_request, is_full
from regroup.service.settings import Settings

_LONGEST_BODY_S = 600.0
"""Time within which a body must be complete, even if its data never stops."""
_MAX_BUCKETS = 10_000
_YES = frozenset({"1", "on", "t", "true", "y", "yes"})


@dataclass
class _OpenRequests:
    """Requests of one kind that are open, with their limits."""

    limit: Limit
    code: str
    """Code of the problem if there are too many."""
    noun: str
    remedy: str
    per_identity: int
    total: int | None = None
    by_sender: Counter[str] = field(default_factory=Counter[str])

    def refusal(self, sender: str) -> str:
        """Return why the sender may not open another one; empty if it may."""
        count, all_open = self.by_sender[sender], self.by_sender.total()
        if count >= self.per_identity:
            return f"{count} {self.noun} of {sender} are open, the largest number for one identity; {self.remedy}"
        if self.total is not None and all_open >= self.total:
            return f"{all_open} {self.noun} of the server's clients are open, its largest number; {self.remedy}"
        return ""

    @contextmanager
    def opened(self, sender: str) -> Generator[None]:
        """Count a request until the block ends."""
        self.by_sender[sender] += 1
        try:
            yield
        finally:
            self.by_sender[sender] -= 1
            if not self.by_sender[sender]:
                del self.by_sender[sender]


class RequestLimits:
    """Middleware that rejects bodies that do not arrive, and requests beyond the limits of the settings.

    Args:
        refusals: counts the refusals.
    """

    def __init__(self, app: ASGIApp, settings: Settings, refusals: Counter[Limit]) -> None:
        self._app, self._settings, self._refusals = app, settings, refusals
        self._streams = _OpenRequests(
            Limit.STREAMS, "too_many_streams", "streams", "close some, or wait until their jobs end",
            settings.streams_per_identity, settings.max_streams,
        )  # fmt: skip
        self._uploads = _OpenRequests(
            Limit.UPLOADS, "too_many_uploads", "uploads", "send the parts of archives one after the other",
            settings.uploads_per_identity,
        )  # fmt: skip
        self._rate = RateLimit(settings.requests_per_s, settings.request_burst) if settings.requests_per_s else None
        self._buckets: dict[str, Bucket] = {}
        """Name of an identity → what is left of its rate."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to the app within the limits, or answer with a problem."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if (wait_s := self._wait_s(scope)) > 0:
            self._refusals[Limit.RATE] += 1
            await _too_many(wait_s, str(scope["path"]))(scope, receive, send)
            return
        receive = self._limit_body(receive)
        kind = self._streams if _is_stream(scope) else self._uploads if _is_upload(scope) else None
        if kind is None:
            await self._app(scope, receive, send)
            return
        sender = _sender_of(scope)
        if refusal := kind.refusal(sender):
            self._refusals[kind.limit] += 1
            await problem(kind.code, refusal, str(scope["path"]))(scope, receive, send)
            return
        with kind.opened(sender):
            await self._app(scope, receive, send)

    def _wait_s(self, scope: Scope) -> float:
        """Return the seconds until the sender may send a request; 0 if it may now."""
        sender = _identity_of(scope)
        if self._rate is None or sender is None or sender.kind is IdentityKind.OWNER:
            return 0.0
        now_s = time.monotonic()
        if len(self._buckets) >= _MAX_BUCKETS:
            self._buckets = {name: each for name, each in self._buckets.items() if not is_full(each, self._rate, now_s)}
        bucket, wait_s = acquire_request(self._buckets.get(sender.subject), self._rate, now_s)
        self._buckets[sender.subject] = bucket
        return wait_s

    def _limit_body(self, receive: Receive) -> Receive:
        is_complete, deadline_s = False, time.monotonic() + _LONGEST_BODY_S
        idle_s = self._settings.body_timeout_s

        async def limited() -> Message:
            nonlocal is_complete
            if is_complete:
                return await receive()  # waits for the client to disconnect
            try:
                async with asyncio.timeout(min(idle_s, deadline_s - time.monotonic())):
                    message = await receive()
            except TimeoutError as error:
                late = f"the body did not arrive in time; send at least a part of it every {idle_s:g} s"
                raise HTTPException(408, late, {"Connection": "close"}) from error
            is_complete = not message.get("more_body", False)
            return message

        return limited


def _is_stream(scope: Scope) -> bool:
    """Return whether the response lasts until a job or a command ends."""
    if str(scope["path"]).endswith("/exec"):
        return True
    follow = parse_qs(scope.get("query_string", b"").decode(errors="replace")).get("follow", [""])
    return follow[-1].lower() in _YES


def _is_upload(scope: Scope) -> bool:
    """Return whether the body is a part of an archive, which the server holds in memory."""
    return scope["method"] == "PATCH" and str(scope["path"]).startswith(UPLOADS)


def _too_many(wait_s: float, path: str) -> Response:
    detail = f"you send more requests than the server allows; send the next one in {wait_s:.1f} s"
    refusal = problem("too_many_requests", detail, path)
    refusal.headers["Retry-After"] = str(math.ceil(wait_s))
    return refusal


def _identity_of(scope: Scope) -> Identity | None:
    """Return the identity that the middleware `Guard` found; None for the probes of the server's health."""
    return cast(Identity | None, scope.get("state", {}).get("identity"))


def _sender_of(scope: Scope) -> str:
    """Return the name of the sender: all its tokens share the limits."""
    sender = _identity_of(scope)
    assert sender is not None, "streams and uploads are not open to everyone"
    return sender.subject
