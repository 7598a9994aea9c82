"""Conversion of all errors, including the framework's, to `application/problem+json` (RFC 9457)."""

import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Match

from regroup.api.schemas.problems import InvalidField, Problem
from regroup.service.blobs.store import DamagedUploadError, QuotaExceededError, RefusedArchiveError, TooLargeError
from regroup.service.documents.document import MalformedDocumentError
from regroup.service.domain.error_codes import CODE_BY_ERROR, error_code
from regroup.service.domain.errors import FieldIssue, RegroupError, SpecError, is_confidential
from regroup.service.operations.submissions import KeyReusedError
from regroup.service.spec.issues import describe_error, issues_of

MEDIA_TYPE = "application/problem+json"
_MAX_VALUE = 200  # characters of an invalid value that are repeated in the answer
_log = structlog.get_logger(__name__)


_CODE_BY_ERROR: Sequence[tuple[type[RegroupError], str]] = (
    (KeyReusedError, "idempotency_key_reused"),
    (TooLargeError, "archive_too_large"),
    (QuotaExceededError, "upload_quota_exceeded"),
    (DamagedUploadError, "damaged_upload"),
    (MalformedDocumentError, "malformed_json"),
    (RefusedArchiveError, "archive_refused"),
    *CODE_BY_ERROR,
)
CODE_BY_STATUS = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "body_too_large",
}
_SECRET = "regroup_secret_request"
EndpointT = TypeVar("EndpointT", bound=Callable[..., Any])


def secret_request(endpoint: EndpointT) -> EndpointT:
    """Mark a route whose request has a secret, so that no problem contains a part of it."""
    setattr(endpoint, _SECRET, True)
    return endpoint


def problem(code: str, detail: str, path: str, errors: Sequence[InvalidField] = ()) -> Response:
    """Return the response for one problem."""
    entry = error_code(code)
    body = Problem(
        type=f"urn:regroup:problem:{code}",
        title=entry.title,
        status=entry.status,
        detail=detail,
        instance=path,
        code=code,
        errors=list(errors),
    )
    content = body.model_dump(mode="json")
    content["errors"] = [_without_place(field) for field in content["errors"]]
    text = json.dumps(content)
    headers = {"Retry-After": "1"} if entry.status in (429, 503) else None
    return Response(text, entry.status, headers, media_type=MEDIA_TYPE)


def _without_place(field: dict[str, Any]) -> dict[str, Any]:
    """Return a field without its line and column if it has none, as in a JSON body."""
    return field if field["line"] is not None else {key: field[key] for key in ("pointer", "detail", "value")}


def spec_problem(error: SpecError, path: str) -> Response:
    """Return the response for an invalid spec, document or request."""
    code = next(code for kind, code in _CODE_BY_ERROR if isinstance(error, kind))
    fields = [_from_issue(issue) for issue in error.issues]
    if code == "malformed_json":
        return problem(code, f"the body is not JSON: {fields[0].detail}", path)
    return problem(code, _describe_fields(fields), path, fields)


def responses(*codes: str) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entries of a route's problems: `codes`, and those that all routes share."""
    found: dict[int | str, dict[str, Any]] = {}
    for code in (
        "bad_request",
        "unauthorized",
        "forbidden",
        "not_found",
        "host_not_allowed",
        "invalid_request",
        "too_many_requests",
        "unavailable",
        *codes,
    ):
        entry = error_code(code)
        schema = {"$ref": "#/components/schemas/Problem"}
        found[entry.status] = {
            "description": entry.title,
            "model": Problem,
            "content": {MEDIA_TYPE: {"schema": schema}},
        }
    return found


def document_bodies(document: Mapping[str, Any]) -> None:
    """Add the problems that any JSON body may cause to the operations of an OpenAPI document that have one."""
    for operations in document["paths"].values():
        for operation in operations.values():
            if "application/json" not in operation.get("requestBody", {}).get("content", {}):
                continue
            found = operation["responses"]
            for code in ("request_timeout", "body_too_large", "unsupported_media_type"):
                entry = error_code(code)
                content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
                found.setdefault(str(entry.status), {"description": entry.title, "content": content})
            operation["responses"] = dict(sorted(found.items()))


def install(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Install handlers that answer every exception of the app, whose routes are `routes`, with a problem."""

    async def on_regroup_error(request: Request, error: Exception) -> Response:
        code = next((code for kind, code in _CODE_BY_ERROR if isinstance(error, kind)), "internal")
        if code == "internal":
            return await on_unexpected_error(request, error)
        if isinstance(error, SpecError):
            return spec_problem(error, request.url.path)
        return problem(code, str(error), request.url.path)

    async def on_validation_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        items = error.errors()
        in_body = any(item["loc"] and item["loc"][0] == "body" for item in items)
        fields = _invalid_fields(items, error.body)
        if getattr(request.scope.get("endpoint"), _SECRET, False):
            fields = [field.model_copy(update={"value": None}) for field in fields]
        return problem(
            "invalid_spec" if in_body else "invalid_request", _describe_fields(fields), request.url.path, fields
        )

    async def on_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = CODE_BY_STATUS.get(error.status_code, "bad_request" if error.status_code < 500 else "internal")
        detail = f"{request.method} {request.url.path}: {error.detail}"
        answer = problem(code, detail, request.url.path)
        for name, value in (error.headers or {}).items():
            answer.headers[name] = value
        if code == "method_not_allowed":  # the framework lists only the methods of the first route of this path
            matching = (route for route in routes if route.matches(request.scope)[0] is not Match.NONE)
            methods = {method for route in matching for method in (getattr(route, "methods", None) or ())}
            answer.headers["Allow"] = ", ".join(sorted(methods))
        return answer

    async def on_unexpected_error(request: Request, error: Exception) -> Response:
        # As text: a renderer that shows local variables would write secrets to the log.
        text = "".join(traceback.format_exception(error))
        _log.error("request failed", method=request.method, path=request.url.path, traceback=text)
        return problem(
            "internal", "the server could not process this request; see the traceback in its log", request.url.path
        )

    app.add_exception_handler(RegroupError, on_regroup_error)
    app.add_exception_handler(RequestValidationError, on_validation_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(Exception, on_unexpected_error)


def _describe_fields(fields: Sequence[InvalidField]) -> str:
    first = f"{fields[0].pointer or 'the body'}: {fields[0].detail}"
    return first if len(fields) == 1 else f"{len(fields)} fields are invalid; {first}"


def _from_issue(issue: FieldIssue) -> InvalidField:
    location = issue.location or (tuple(issue.path.split(".")) if issue.path else ())
    return _invalid_field(location, issue.message, issue.value)


def _invalid_fields(items: Sequence[Mapping[str, Any]], body: object) -> list[InvalidField]:
    """Return the invalid fields of a body, and the invalid parameters, from the errors of their validation."""
    in_body = [{**item, "loc": item["loc"][1:]} for item in items if item["loc"] and item["loc"][0] == "body"]
    fields = [_from_issue(issue) for issue in issues_of(in_body, body)]
    for item in items:
        if item["loc"] and item["loc"][0] != "body":
            name = str(item["loc"][1]) if len(item["loc"]) > 1 else str(item["loc"][0])
            fields.append(
                InvalidField(pointer=name, detail=describe_error(item), value=_displayable(item.get("input")))
            )
    return fields


def _invalid_field(location: Sequence[str | int], message: str, value: object) -> InvalidField:
    escaped = [str(part).replace("~", "~0").replace("/", "~1") for part in location]
    pointer = "".join(f"/{part}" for part in escaped)
    return InvalidField(
        pointer=pointer, detail=message, value=None if is_confidential(location) else _displayable(value)
    )


def _displayable(value: object) -> object:
    """Return an invalid value shortened for the answer; None for objects, lists and non-finite numbers."""
    if isinstance(value, str):
        return value[:_MAX_VALUE].encode(errors="replace").decode()
    if isinstance(value, bool):
        return value
    return value if isinstance(value, int | float) and abs(value) < 2**63 else None
