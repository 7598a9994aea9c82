"""The token that a server asks for: where a client finds it, and how requests carry it."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2

from regroup.api.client.connection.profiles import load_profiles
from regroup.api.client.connection.renewal import fresh_token
from regroup.service.domain.errors import ForbiddenError
from regroup.service.local.api_token import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from regroup.service.local.processes import Process

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_UNAUTHORIZED = 401


def state_dir() -> Path:
    """Return the state directory of this machine's server."""
    return Path(os.environ.get("REGROUP_STATE_DIR") or "~/.regroup").expanduser()


def server_record(folder: Path) -> dict[str, Any] | None:
    """Return the record of the server that was last started on a state directory; None if there is none."""
    try:
        record: object = json.loads((folder / "server.json").read_text())
    except (OSError, ValueError):
        return None
    return cast(dict[str, Any], record) if isinstance(record, dict) else None


def find_token(url: str) -> str | None:
    """Return the token for a server: from the variables, from its profile, or from the file of this machine's server.

    Raises:
        ForbiddenError: REGROUP_TOKEN_FILE names a file that cannot be read, or the profiles cannot be read.
        UnauthorizedError: the sign-in has ended.
        UnavailableError: the issuer that renews the token does not answer.
    """
    if token := os.environ.get(TOKEN_VARIABLE):
        return token.strip()
    if file := os.environ.get(TOKEN_FILE_VARIABLE):
        try:
            return Path(file).expanduser().read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ForbiddenError(f"the token file {file} ({TOKEN_FILE_VARIABLE}) cannot be read: {error}") from error
    if (profile := load_profiles().of_server(url)) is not None:
        return fresh_token(profile)
    return _local_token(url)


class TokenAuth(httpx2.Auth):
    """Adds the token to requests. After a refusal it reads the token again: the server may have restarted."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url = url
        self._given = token
        self._found: str | None = None

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response]:
        """Send a request, with a token if there is one."""
        token = self._given or self._found or find_token(self._url)
        response = yield _with_token(request, token)
        if response.status_code == _UNAUTHORIZED and self._given is None:
            fresh = find_token(self._url)
            if fresh is not None and fresh != token:
                token = fresh
                response = yield _with_token(request, token)
        self._found = token if response.status_code != _UNAUTHORIZED else None

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request as `auth_flow` does, without blocking the event loop for a file or for an issuer."""
        flow = self.auth_flow(request)
        following: httpx2.Request | None = await asyncio.to_thread(next, flow)
        while following is not None:
            response = yield following
            following = await asyncio.to_thread(_following, flow, response)


def _following(flow: Generator[httpx2.Request, httpx2.Response], response: httpx2.Response) -> httpx2.Request | None:
    """Return the next request of a flow; None at its end, because a future cannot hold StopIteration."""
    try:
        return flow.send(response)
    except StopIteration:
        return None


def _with_token(request: httpx2.Request, token: str | None) -> httpx2.Request:
    if token is not None:
        request.headers["Authorization"] = f"Bearer {token}"
    return request


def _local_token(url: str) -> str | None:
    """Return the token of this machine's server, if it runs and listens at `url`.

    A program of another user may listen at the address of a server that has ended. It must not get the token.
    """
    record = server_record(state_dir())
    if record is None:
        return None
    try:
        is_alive = Process(int(record["pid"]), int(record["started"])).is_alive
        return Path(record["token_path"]).read_text().strip() if is_alive and _is_same(url, record["url"]) else None
    except (KeyError, TypeError, ValueError, OSError):
        return None


def _is_same(url: str, recorded: str) -> bool:
    one, other = urlsplit(url), urlsplit(recorded)
    if one.scheme != other.scheme:
        return False
    is_local = one.hostname in _LOOPBACK and other.hostname in _LOOPBACK
    is_same_place = (one.port, one.path.rstrip("/")) == (other.port, other.path.rstrip("/"))
    return is_same_place and (one.hostname == other.hostname or is_local)
