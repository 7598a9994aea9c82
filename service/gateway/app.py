"""The HTTP interface of a gateway: each call of `Cluster` as one request, and the probes of Kubernetes."""

import secrets
from collections.abc import Callable

import structlog
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from regroup.service.domain.errors import RegroupError
from regroup.service.ports.cluster import Cluster
from regroup.service.remote_cluster.wire import CALLS, SIGNATURES, CallError, ClusterFaultError, encode_error

MAX_BODY_BYTES = 64 * 2**20
"""Largest request. The longest carries the configuration of a job with its command and environment."""
_log = structlog.get_logger(__name__)


def create_app(cluster: Cluster, token: str, health: Callable[[], str]) -> Starlette:
    """Return the application.

    Args:
        cluster: the cluster that the calls reach.
        token: token that every call needs.
        health: returns why the process should be restarted; empty if it is healthy.
    """

    async def call(request: Request) -> Response:
        if not _is_authorized(request, token):
            return PlainTextResponse("the token is missing or wrong", 401, {"WWW-Authenticate": "Bearer"})
        method = str(request.path_params["method"])
        if (signature := SIGNATURES.get(method)) is None:
            return PlainTextResponse(f"a cluster has no method {method[:100]!r}", 404)
        try:
            arguments = signature.decode_request(await _read_body(request))
        except CallError as error:
            return PlainTextResponse(str(error), 400)
        try:
            body = signature.encode_value(await getattr(cluster, method)(**arguments))
        except RegroupError as error:
            body = encode_error(error)
        except Exception as error:  # the caller must get an answer, and continues with other jobs
            _log.exception("a call failed", method=method)
            body = encode_error(ClusterFaultError(f"the gateway failed in {method}: {type(error).__name__}: {error}"))
        return Response(body, media_type="application/json")

    async def probe(_: Request) -> Response:
        problem = health()
        return PlainTextResponse(problem or "ok", 503 if problem else 200)

    return Starlette(routes=[
        Route(CALLS + "{method}", call, methods=["POST"]),
        Route("/livez", probe),
        Route("/readyz", probe),
    ])  # fmt: skip


def _is_authorized(request: Request, token: str) -> bool:
    kind, _, given = request.headers.get("Authorization", "").partition(" ")
    return kind.lower() == "bearer" and secrets.compare_digest(given.encode(), token.encode())


async def _read_body(request: Request) -> bytes:
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                raise CallError(f"the body is larger than {MAX_BODY_BYTES / 2**20:.0f} MiB")
    except ClientDisconnect as error:
        raise CallError("the caller closed the connection") from error
    return bytes(body)
