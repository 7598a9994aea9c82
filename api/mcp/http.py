"""The MCP server over streamable HTTP, on loopback. Each request brings its own token, which goes on to the API."""

import hashlib
import ipaddress
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette

from regroup.api.client.async_client import AsyncClient
from regroup.api.client.discovery import connect_async, require_address
from regroup.api.mcp.calls.caller import Caller
from regroup.api.mcp.calls.confirmation import Confirmations
from regroup.api.mcp.server import Context, create_server
from regroup.service.domain.errors import FieldIssue, SettingError, UnauthorizedError

PATH = "/mcp"
MAX_BODY_BYTES = 2 * 2**20
"""Largest request: the arguments of a tool with the largest job spec fit."""
_MAX_CONNECTIONS = 256
_BEARER = "bearer "
_MAX_TOKEN = 8192


def serve_http(server: str | None, host: str, port: int) -> None:
    """Serve until interrupted.

    Args:
        server: URL of the API; None for that of the current profile, else for the server of this machine.
        host: address to bind, which must be loopback.
        port: port to bind; 0 selects a free one.

    Raises:
        SettingError: other machines could reach the address, or it cannot be bound.
        UnavailableError: no server was given, and none was started on this machine.
    """
    check_bind(host)
    url = require_address(server)
    with _bind(host, port) as listener:
        bound = int(listener.getsockname()[1])
        application = create_app(url, host, bound)
        config = uvicorn.Config(
            application, log_level="warning", access_log=False, ws="none", limit_concurrency=_MAX_CONNECTIONS
        )
        print(f"serving MCP at http://{_in_url(host)}:{bound}{PATH}", file=sys.stderr, flush=True)
        uvicorn.Server(config).run(sockets=[listener])


def check_bind(host: str) -> None:
    """Check that only this machine reaches an address.

    Raises:
        SettingError: others reach it, too.
    """
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise SettingError(
            [
                FieldIssue(
                    "--bind",
                    "must be a loopback address, because tokens would cross the network without TLS; bind 127.0.0.1, "
                    "and let a proxy with TLS send requests to it",
                    host,
                )
            ]
        )


def create_app(url: str, host: str, port: int) -> Starlette:
    """Return the application. It has no rights of its own and keeps no session.

    Args:
        url: URL of the API.
        host: bound address.
        port: bound port: requests of pages at other ports of this machine are refused.
    """
    confirmations = Confirmations()

    @asynccontextmanager
    async def identify(context: Context) -> AsyncGenerator[Caller]:
        token = _token(context)
        async with connect_async(url, token=token) as client:
            yield _caller(client, token, confirmations)

    names = [f"{name}:{port}" for name in {_in_url(host), "127.0.0.1", "localhost", "[::1]"}]
    security = TransportSecuritySettings(allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names])
    return create_server(identify).streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        json_response=True,
        max_request_body_size=MAX_BODY_BYTES,
        transport_security=security,
        host=host,
    )


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address.

    Raises:
        SettingError: the address cannot be bound.
    """
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        message = f"cannot be bound: {error.strerror}; use another port, or 0 for a free one"
        raise SettingError([FieldIssue("--bind", message, f"{host}:{port}")]) from error


def _token(context: Context) -> str:
    """Return the token of a request.

    Raises:
        UnauthorizedError: it has none.
    """
    header = "" if context.request is None else str(context.request.headers.get("authorization", ""))
    token = header[len(_BEARER) :].strip() if header.lower().startswith(_BEARER) else ""
    if not token or len(token) > _MAX_TOKEN or not token.isascii() or not token.isprintable():
        raise UnauthorizedError(
            "the request has no token; send `Authorization: Bearer TOKEN` with a token of `regroup token create`"
        )
    return token


def _caller(client: AsyncClient, token: str, confirmations: Confirmations) -> Caller:
    return Caller(client, hashlib.sha256(token.encode()).hexdigest(), confirmations)
