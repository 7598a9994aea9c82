"""Strict parameters on all routes: none is unknown, and a request without a body has none."""

from collections.abc import Mapping
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute


async def check_request(request: Request, route: APIRoute, query_parameters: Mapping[str, bool]) -> None:
    """Refuse parameters that the route does not have, repeated ones, and a body if the route has none.

    Args:
        route: the route of the request.
        query_parameters: its query parameters: name → whether it is a list.

    Raises:
        RequestValidationError: the request has one of these.
    """
    lists = query_parameters
    given = request.query_params.multi_items()
    names = [name for name, _ in given]
    valid = ", ".join(sorted(lists)) or "none"
    errors = [
        _error(name, f"unknown parameter; parameters of this request: {valid}", value)
        for name, value in dict(given).items()
        if name not in lists
    ]
    errors += [
        _error(name, "can be given only once", value)
        for name, value in dict(given).items()
        if not lists.get(name, True) and names.count(name) > 1
    ]
    accepts_body = route.body_field is not None or "requestBody" in (route.openapi_extra or {})
    if not accepts_body and request.method not in ("GET", "HEAD") and await request.body():
        errors.append({"type": "unexpected_body", "loc": ("body",), "msg": "this request takes no body", "input": None})
    if errors:
        raise RequestValidationError(errors)


def _error(name: str, message: str, value: str) -> Mapping[str, Any]:
    return {"type": "parameter", "loc": ("query", name), "msg": message, "input": value}
