"""The cluster port over HTTP: the control plane calls a gateway, which calls Ray. This process does not import Ray."""

import asyncio
import functools
import ssl
import time
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx2
import structlog

from regroup.service.cluster_state.topology import Topology
from regroup.service.domain.errors import ConflictError, UnavailableError
from regroup.service.ports.cluster import Cluster, ClusterUnavailableError, Node
from regroup.service.remote_cluster.wire import CALLS, SIGNATURES, CallError, Signature

WAIT_S = 30.0
"""Time within which the gateway must answer at the start."""
_POLL_S = 0.5
_CONNECT_S = 5.0
_CALL_S = 20.0
_SLOW_S: Mapping[str, float] = {
    "create_reservation": 120.0,
    "execute": 90.0,
    "kill_actor": 45.0,
    "stacks": 45.0,
    "stop_supervisor": 75.0,
}
"""Method → time limit in seconds, where the gateway itself may need longer than `_CALL_S`."""
_log = structlog.get_logger(__name__)


class RemoteCluster:
    """Sends the calls of `Cluster` to a gateway. `as_cluster` returns it as a `Cluster`.

    `connect` waits for the gateway, `open` does not.

    The gateway keeps nothing that a call needs, so any number of control planes may use it, and calls may go to
    different processes of it.
    """

    def __init__(self, http: httpx2.AsyncClient, url: str, topology: Topology | None = None) -> None:
        self._http, self._url, self._topology = http, url, topology

    @classmethod
    async def connect(
        cls,
        url: str,
        token: str,
        *,
        ca_file: Path | None = None,
        topology: Topology | None = None,
        wait_s: float = WAIT_S,
    ) -> "RemoteCluster":
        """Wait until the gateway answers a call.

        Args:
            url, token, ca_file, topology: as `open`.
            wait_s: time within which it must answer.

        Raises:
            ConflictError: `ca_file` cannot be used.
            UnavailableError: the gateway or its cluster does not answer, or refuses the token.
        """
        cluster = cls.open(url, token, ca_file=ca_file, topology=topology)
        await cluster.wait(wait_s)
        return cluster

    @classmethod
    def open(
        cls, url: str, token: str, *, ca_file: Path | None = None, topology: Topology | None = None
    ) -> "RemoteCluster":
        """Return a client that connects with its first call.

        Args:
            url: `https://HOST:PORT`; `http` for a gateway on this machine.
            token: token of the gateway.
            ca_file: certificates that may sign the one of the gateway, PEM. Default: those of the system.
            topology: places of nodes.

        Raises:
            ConflictError: `ca_file` cannot be used.
        """
        http = httpx2.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx2.Timeout(_CALL_S, connect=_CONNECT_S, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100),  # each live job has a long poll
            trust_env=False,
            verify=_trust(url, ca_file),
        )
        return cls(http, url, topology)

    def as_cluster(self) -> Cluster:
        """Return this object with its type for callers: every method of `Cluster` exists."""
        return typing.cast(Cluster, self)

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def nodes(self) -> Sequence[Node]:
        """Return every live node with its place. The topology is a setting of the control plane."""
        found: Sequence[Node] = await self._call("nodes")
        return self._topology.located(found) if self._topology else found

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name not in SIGNATURES:
            raise AttributeError(f"a cluster has no method {name}")
        return functools.partial(self._call, name)

    async def _call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        signature = SIGNATURES[method]
        body = signature.encode_request(args, kwargs)
        limit_s = _limit_of(signature, method, args, kwargs)
        timeout = httpx2.Timeout(limit_s, connect=_CONNECT_S, pool=None)
        try:
            async with asyncio.timeout(limit_s + _CONNECT_S):
                reply = await self._http.post(CALLS + method, content=body, timeout=timeout, headers=_JSON)
        except (httpx2.TransportError, TimeoutError, OSError) as error:
            raise ClusterUnavailableError(f"the gateway {self._url} does not answer: {_describe(error)}") from error
        if reply.status_code == HTTPStatus.UNAUTHORIZED:
            raise ClusterUnavailableError(
                f"the gateway {self._url} refuses the token: give both the same file with a token"
            )
        if reply.status_code != HTTPStatus.OK:
            raise ClusterUnavailableError(f"the gateway {self._url} refuses a call: {reply.text[:500] or reply}")
        try:
            return signature.decode_reply(reply.content)
        except CallError as error:
            raise ClusterUnavailableError(f"the gateway {self._url} is of another version: {error}") from error

    async def wait(self, wait_s: float = WAIT_S) -> None:
        """Wait until the gateway answers a call.

        Raises:
            UnavailableError: it did not answer in `wait_s` seconds.
        """
        deadline_s, is_reported = time.monotonic() + wait_s, False
        while True:
            try:
                await self._call("nodes")
            except ClusterUnavailableError as error:
                if time.monotonic() + _POLL_S > deadline_s:
                    raise UnavailableError(
                        f"no cluster answers at the gateway {self._url} within {wait_s:.0f} s: {error}; correct "
                        "the address (REGROUP_GATEWAY_URL, or gateway_url in the clusters file), or start "
                        "`regroup gateway` there"
                    ) from error
                if not is_reported:
                    is_reported = True
                    _log.warning("the gateway does not answer yet", url=self._url, reason=str(error), waits_s=wait_s)
            else:
                return
            await asyncio.sleep(_POLL_S)


_JSON = {"Content-Type": "application/json"}


def _limit_of(signature: Signature, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> float:
    """Return the time limit of a call in seconds. A long poll may last as long as it requests."""
    named = dict(zip(signature.parameters, args, strict=False)) | dict(kwargs)
    waits_s = named["request"].wait_s if method == "sync" else named.get("wait_s", 0.0)
    return _SLOW_S.get(method, _CALL_S) + waits_s


def _trust(url: str, ca_file: Path | None) -> ssl.SSLContext | bool:
    if not url.startswith("https:"):
        return False  # loads no certificates
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConflictError(
            f"the certificates {ca_file} for the gateway {url} cannot be used: {error}; correct "
            "REGROUP_GATEWAY_CA_FILE, or ca_file in the clusters file"
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__
