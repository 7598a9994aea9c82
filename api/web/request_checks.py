"""Strict bodies on all routes: they are JSON as `service/documents` reads it."""

import asyncio
from email.message import Message as Header

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regroup.api.web.http import UPLOADS
from regroup.api.web.problems import CODE_BY_STATUS, problem, spec_problem
from regroup.service.documents.document import DocumentError
from regroup.service.documents.json_text import parse_json

_LARGE_BYTES = 32 * 1024
"""A larger body is parsed in a thread, so that other requests do not wait for it."""
_ADVICE = (
    "send the body as JSON with the header Content-Type: application/json, for example "
    "curl -H 'Content-Type: application/json' --data-binary @spec.json URL"
)


class JsonBodies:
    """Middleware that refuses a body that is not strict JSON, with its line and column. Pieces of uploads are bytes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass valid bodies to the app, and answer others with a problem."""
        if scope["type"] != "http" or str(scope["path"]).startswith(UPLOADS) or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        path = str(scope["path"])
        try:
            body = await read_body(receive)
            refusal = await _find_refusal(body, Headers(scope=scope).get("content-type"), path)
        except HTTPException as error:  # the body is too large, or did not arrive
            refusal, body = problem(CODE_BY_STATUS[error.status_code], error.detail, path), b""
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        is_replayed = False

        async def replay() -> Message:
            nonlocal is_replayed
            if is_replayed:
                return await receive()
            is_replayed = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)


async def read_body(receive: Receive) -> bytes:
    """Return the whole body of a request."""
    pieces: list[bytes] = []
    while True:
        message = await receive()
        pieces.append(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body", False):
            return b"".join(pieces)


async def _find_refusal(body: bytes, content_type: str | None, path: str) -> Response | None:
    if not body:
        return None
    if not _is_json(content_type):
        given = "there is no such header" if content_type is None else f"not {content_type[:100]!r}"
        return problem("unsupported_media_type", f"{_ADVICE}; {given}", path)
    try:
        if len(body) > _LARGE_BYTES:
            await asyncio.to_thread(parse_json, body)
        else:
            parse_json(body)
    except DocumentError as error:
        return spec_problem(error, path)
    return None


def _is_json(content_type: str | None) -> bool:
    header = Header()
    header["content-type"] = content_type or ""
    kind, charset = header.get_content_type(), header.get_content_charset()
    is_json = kind.startswith("application/") and (kind == "application/json" or kind.endswith("+json"))
    return content_type is not None and is_json and charset in (None, "utf-8", "us-ascii")
