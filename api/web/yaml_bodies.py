"""Specs in YAML: routes that accept a job spec also accept it as `application/yaml`, read as `regroup submit` reads it.

The body becomes JSON before the app sees it. A problem with a field then also has its line and column in the YAML text.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regroup.api.schemas.problems import InvalidField
from regroup.api.web.problems import CODE_BY_STATUS, problem
from regroup.api.web.request_checks import read_body
from regroup.service.documents.document import DocumentError, MalformedDocumentError, Position
from regroup.service.documents.tree import Places
from regroup.service.documents.yaml_text import parse_yaml
from regroup.service.spec.job import UNTYPED

MEDIA_TYPE = "application/yaml"
PATHS = frozenset({"/v1/jobs", "/v1/spec/validate", "/v1/spec/sizes"})
"""Paths whose POST accepts a spec in YAML."""
YAML_BODY: dict[str, Any] = {
    "requestBody": {
        "content": {MEDIA_TYPE: {"schema": {"type": "string", "description": "The spec in YAML", "maxLength": 1048576}}}
    }
}
"""Entry of these operations in the OpenAPI document."""
_PLACE = re.compile(r"line (\d+), column (\d+): ")


class YamlBodies:
    """Middleware that turns specs in YAML into JSON."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a valid YAML body to the app as JSON, and answer others with a problem."""
        if not _is_yaml_spec(scope):
            await self._app(scope, receive, send)
            return
        path, places = str(scope["path"]), Places()
        try:
            source = await read_body(receive)
            value = await asyncio.to_thread(parse_yaml, source, UNTYPED, (), places)
        except HTTPException as error:  # the body is too large, or did not arrive
            await problem(CODE_BY_STATUS[error.status_code], error.detail, path)(scope, receive, send)
            return
        except DocumentError as error:
            kind = "malformed_json" if isinstance(error, MalformedDocumentError) else "invalid_spec"
            fields = [_refused_field(issue.path, issue.message) for issue in error.issues]
            refusal = problem(kind, f"the body is not a YAML spec: {fields[0].detail}", path, fields)
            await refusal(scope, receive, send)
            return
        body = json.dumps(value).encode()
        is_replayed = False

        async def replay() -> Message:
            nonlocal is_replayed
            if is_replayed:
                return await receive()
            is_replayed = True
            return {"type": "http.request", "body": body, "more_body": False}

        answer = _PlacedProblem(send, places)
        await self._app(_as_json(scope, len(body)), replay, answer.send)


class _PlacedProblem:
    """Adds the places of fields to a problem. Other answers pass unchanged."""

    def __init__(self, send: Send, places: Places) -> None:
        self._send, self._places = send, places
        self._start: Message | None = None
        self._pieces: list[bytes] = []

    async def send(self, message: Message) -> None:
        """Pass a message of the answer on; hold a problem back until it is complete."""
        if message["type"] == "http.response.start" and message["status"] == 422:
            self._start = message
            return
        if self._start is None or message["type"] != "http.response.body":
            await self._send(message)
            return
        self._pieces.append(message.get("body", b""))
        if message.get("more_body", False):
            return
        found = json.loads(b"".join(self._pieces))
        for field in found.get("errors", []):
            if (place := _place_of(self._places, field["pointer"])) is not None:
                field |= {"line": place.line, "column": place.column}
        body = json.dumps(found).encode()
        MutableHeaders(raw=self._start["headers"])["content-length"] = str(len(body))
        await self._send(self._start)
        await self._send({"type": "http.response.body", "body": body})


def _is_yaml_spec(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in PATHS:
        return False
    kind = Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()
    return kind == MEDIA_TYPE


def _as_json(scope: Scope, size_bytes: int) -> Scope:
    names = (b"content-type", b"content-length")
    headers = [each for each in scope["headers"] if each[0].lower() not in names]
    added = [(b"content-type", b"application/json"), (b"content-length", str(size_bytes).encode())]
    return {**scope, "headers": [*headers, *added]}


def _refused_field(path: str, message: str) -> InvalidField:
    pointer = f"/{path.replace('.', '/')}" if path else ""
    place = _PLACE.match(message)
    if place is None:
        return InvalidField(pointer=pointer, detail=message)
    return InvalidField(pointer=pointer, detail=message, line=int(place[1]), column=int(place[2]))


def _place_of(places: Places, pointer: str) -> Position | None:
    """Return the place of a field, or of the innermost section that contains it."""
    location: Sequence[str] = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    by_name = {tuple(map(str, where)): place for where, place in places.items()}
    for length in range(len(location), 0, -1):
        if (place := by_name.get(tuple(location[:length]))) is not None:
            return place
    return None
