"""The class of all routes: conditions of changes, keys of repeated requests, and the ETag of what a request returns.

Each route that changes something accepts `dry_run` and `If-Match`, and each POST among them `Idempotency-Key`. They
take effect in `service/store`, in the transaction of the change; the code of a route does not mention them.
"""

import hashlib
import json
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import cached_property, partial
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, Header, Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.responses import Response

from regroup.api.web.problems import responses
from regroup.api.web.request_parameters import check_request
from regroup.service.domain.errors import ConflictError, FieldIssue, UnavailableError
from regroup.service.domain.identity import Identity
from regroup.service.operations.assembly.services import Services
from regroup.service.operations.submissions import KeyReusedError
from regroup.service.store.transactions.idempotency import RepeatedRequestError, RequestKey
from regroup.service.store.transactions.write_conditions import WriteConditions, current_conditions, obeying

DRY_RUN_HEADER = "Dry-Run"
"""Header of the answer to a dry run."""
REPLAYED_HEADER = "Idempotency-Replayed"
"""Header of an answer that an earlier request got."""
CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_MAX_STORED_BYTES = 256 * 1024
_UNCONDITIONAL, _SECRET = "regroup_unconditional", "regroup_secret_response"
_IN_PROGRESS = {"in_progress": True}
EndpointT = TypeVar("EndpointT", bound=Callable[..., Any])
Handler = Callable[[Request], Coroutine[Any, Any, Response]]

DryRun = Annotated[bool, Query(description="Check the request and return its result, but store nothing")]
IfMatch = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=2000,
        description="Entity tags of the object, as its `etag` shows them, or `*`: refuse if it has another state",
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="Requests with the same key and body take effect once",
    ),
]


def unconditional(reason: str) -> Callable[[EndpointT], EndpointT]:
    """Mark a route whose method is that of a change, but which has no object with a state, for `reason`."""

    def mark(endpoint: EndpointT) -> EndpointT:
        setattr(endpoint, _UNCONDITIONAL, reason)
        return endpoint

    return mark


def secret_response(endpoint: EndpointT) -> EndpointT:
    """Mark a route whose response has a secret, so that it is not stored for a repeated request."""
    setattr(endpoint, _SECRET, True)
    return endpoint


def unconditional_reason(endpoint: Callable[..., Any]) -> str:
    """Return why a route accepts no conditions; empty if it does."""
    return str(getattr(endpoint, _UNCONDITIONAL, ""))


class OperationRoute(APIRoute):
    """A route. If it changes something, the request may set conditions."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        methods: set[str] = set(options.get("methods") or ("GET",))
        self._is_conditional = bool(methods & CHANGING) and not unconditional_reason(endpoint)
        # A route with a parameter of its own for the key answers a repetition with the current state of its object.
        self._has_key = self._is_conditional and "POST" in methods and not _has_own_key(endpoint)
        if self._is_conditional:
            accept = _accept_conditions_and_key if self._has_key else _accept_conditions
            options["dependencies"] = [Depends(accept), *(options.get("dependencies") or ())]
            codes = ("precondition_failed", "conflict") if self._has_key else ("precondition_failed",)
            options["responses"] = {**responses(*codes), **(options.get("responses") or {})}
        super().__init__(path, endpoint, **options)

    @cached_property
    def query_parameters(self) -> Mapping[str, bool]:
        """Query parameters of the route and of its dependencies: name → whether it is a list."""
        return _query_parameters(self.dependant)

    def get_route_handler(self) -> Handler:
        """Return the function that answers a request."""
        handle = partial(_checked, super().get_route_handler(), self)
        model = self.response_model
        if isinstance(model, type) and issubclass(model, BaseModel) and "etag" in model.model_fields:
            handle = partial(_tagged, handle)
        if not self._is_conditional:
            return handle
        is_secret = bool(getattr(self.endpoint, _SECRET, False))
        return partial(_change, handle, has_key=self._has_key, is_secret=is_secret)


async def _accept_conditions(dry_run: DryRun = False, if_match: IfMatch = None) -> None:
    conditions = current_conditions()
    assert conditions is not None, "a route that changes something has conditions"
    conditions.dry_run, conditions.if_match = dry_run, if_match


async def _accept_conditions_and_key(
    dry_run: DryRun = False, if_match: IfMatch = None, idempotency_key: IdempotencyKey = None
) -> None:
    await _accept_conditions(dry_run, if_match)


async def _checked(handle: Handler, route: "OperationRoute", request: Request) -> Response:
    """Refuse parameters and bodies that the route does not have."""
    await check_request(request, route, route.query_parameters)
    return await handle(request)


async def _tagged(handle: Handler, request: Request) -> Response:
    """Answer with the `ETag` of the object in the answer."""
    response = await handle(request)
    if response.body and "etag" not in response.headers:
        etag = json.loads(bytes(response.body)).get("etag")
        if isinstance(etag, str):
            response.headers["ETag"] = etag
    return response


async def _change(handle: Handler, request: Request, *, has_key: bool, is_secret: bool) -> Response:
    services = cast(Services, request.app.state.services)
    key = await _request_key(request) if has_key else None
    store = services.store.idempotency
    reserve = None if key is None else partial(store.reserve, request=key, response=_IN_PROGRESS, now=services.clock())
    conditions = WriteConditions(reserve)
    async with obeying(conditions):
        try:
            response = await handle(request)
        except RepeatedRequestError as error:
            if key is None:
                raise
            return _replay(key, error.body_hash, error.response)
        except ConflictError:
            # The first request may have changed the state that this one conflicts with.
            found = None if key is None else await store.find(key.scope, key.key, now=services.clock())
            if key is None or found is None:
                raise
            return _replay(key, *found)
        if key is not None and conditions.is_reserved:
            with suppress(UnavailableError):  # the change is stored; a repetition learns that its response is not
                await store.complete(key, _stored_form(response, is_secret=is_secret))
        if conditions.dry_run:
            response.headers[DRY_RUN_HEADER] = "true"
    return response


async def _request_key(request: Request) -> RequestKey | None:
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    identity = cast(Identity, request.state.identity)
    body = await request.body()
    digest = hashlib.sha256(b"\n".join([request.url.query.encode(), body])).hexdigest()
    return RequestKey(f"{identity.subject}:{request.method} {request.url.path}", key, digest)


def _replay(key: RequestKey, body_hash: str, stored: Any) -> Response:
    """Return the response of an earlier request with this key."""
    if body_hash != key.body_hash:
        issue = FieldIssue("Idempotency-Key", "was used before with another request; use a new key", key.key)
        raise KeyReusedError([issue])
    if "status" not in stored:
        raise ConflictError(
            f"a request with Idempotency-Key {key.key!r} is in progress, or its response was lost; get the object to "
            "see its state, or use a new key"
        )
    if "body" not in stored:
        raise ConflictError(
            f"a request with Idempotency-Key {key.key!r} was processed, and its response was shown once; get the "
            "object to see its state, or use a new key"
        )
    headers = {**stored["headers"], REPLAYED_HEADER: "true"}
    return Response(stored["body"], stored["status"], headers, stored["media_type"])


def _stored_form(response: Response, *, is_secret: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"status": response.status_code}
    if is_secret or len(response.body) > _MAX_STORED_BYTES:
        return found
    headers = {name: response.headers[name] for name in ("location", "etag") if name in response.headers}
    body = bytes(response.body).decode()
    return {**found, "headers": headers, "body": body, "media_type": response.media_type if body else None}


def _query_parameters(dependant: Dependant) -> dict[str, bool]:
    found = {each.alias: "list[" in str(each.field_info.annotation) for each in dependant.query_params}
    for other in dependant.dependencies:
        found |= _query_parameters(other)
    return found


def _has_own_key(endpoint: Callable[..., Any]) -> bool:
    return "idempotency_key" in endpoint.__annotations__
