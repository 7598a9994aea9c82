"""`regroup gateway`: join the Ray cluster, and answer calls until a signal."""

import asyncio
import os
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from regroup.service.domain.errors import ConflictError, FieldIssue, SettingError
from regroup.service.domain.loopback import is_loopback_host
from regroup.service.gateway.app import create_app
from regroup.service.gateway.cluster_health import ClusterHealth
from regroup.service.local import private_files
from regroup.service.local.allocator import limit_arenas, run_memory_trim
from regroup.service.local.api_token import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, ensure_token
from regroup.service.local.asgi_server import AsgiServer, allow_descriptors, load_certificate, stop_on_signals
from regroup.service.local.log_format import hide_variables
from regroup.service.local.server_exit import end_within
from regroup.service.ray_adapter.reach import check_reachable

_EXIT_S = 3.0
"""Longest time between the end of the work and the end of the process."""
_DRAIN_S = 3
_MOST_CALLS = 20_000
"""Most connections. Each live job of each control plane has one long poll."""


@dataclass(frozen=True)
class GatewayOptions:
    """The flags of `regroup gateway`."""

    ray_address: str
    token_file: Path
    host: str = "127.0.0.1"
    port: int = 8600
    tls_cert: Path | None = None
    tls_key: Path | None = None


def run_gateway(options: GatewayOptions) -> None:
    """Serve until SIGINT or SIGTERM. Jobs keep running.

    Raises:
        ConflictError: the address is in use, the token is not private, or the certificate cannot be used.
        SettingError: the network would carry calls without encryption, or a flag is invalid.
        UnavailableError: the cluster does not answer.
    """
    _check_exposure(options)
    token = ensure_token(options.token_file, create=False, setting="--token-file")
    limit_arenas()
    hide_variables()
    private_files.make_private()
    private_files.hide_memory()
    for name in (TOKEN_VARIABLE, TOKEN_FILE_VARIABLE):  # a gateway needs no token of the API
        os.environ.pop(name, None)
    allow_descriptors()
    with _bind(options) as listener, tempfile.TemporaryDirectory(prefix="regroup-gateway-") as folder:
        # The working directory becomes sys.path[0] of every Ray worker, so it must not contain the user's packages.
        os.chdir(folder)
        try:
            asyncio.run(_serve(options, token.value, listener))
        finally:
            os.chdir("/")
    end_within(_EXIT_S)  # the interpreter waits for threads and for Ray's client, which may never return


async def _serve(options: GatewayOptions, token: str, listener: socket.socket) -> None:
    stopping = asyncio.Event()
    await check_reachable(options.ray_address)
    from regroup.service.ray_adapter.cluster import RayCluster  # Ray reads the environment on import

    cluster = await RayCluster.connect(options.ray_address)
    stop_on_signals(stopping)  # after Ray, which replaces the handlers
    health = ClusterHealth(cluster)
    app = create_app(cluster, token, health.problem)
    config = uvicorn.Config(
        app, ws="none", access_log=False, log_level="warning", timeout_graceful_shutdown=_DRAIN_S,
        limit_concurrency=_MOST_CALLS,
    )  # fmt: skip
    config.load()
    config.ssl = None if options.tls_cert is None else load_certificate(options.tls_cert, options.tls_key)
    web = AsgiServer(config)
    tasks = [asyncio.create_task(work) for work in (health.run(), run_memory_trim())]
    serving = asyncio.create_task(web.serve(sockets=[listener]))
    started, stopped = asyncio.create_task(web.up.wait()), asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({serving, started}, return_when=asyncio.FIRST_COMPLETED)
        if started.done():
            print(_ready_line(options, listener), flush=True)
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        web.should_exit = True
        for task in (*tasks, started, stopped):
            task.cancel()
        await serving


def _check_exposure(options: GatewayOptions) -> None:
    if (options.tls_cert is None) != (options.tls_key is None):
        flag = "--tls-key" if options.tls_cert else "--tls-cert"
        raise SettingError([FieldIssue(flag, "--tls-cert and --tls-key belong together: give both, or none")])
    if options.tls_cert is not None:
        load_certificate(options.tls_cert, options.tls_key)  # a wrong one is an error before anything starts
    elif not is_loopback_host(options.host):
        remedy = "give --tls-cert and --tls-key, or use 127.0.0.1"
        problem = f"is not a loopback address, and calls carry secrets of jobs: {remedy}"
        raise SettingError([FieldIssue("--host", problem, options.host)])


def _bind(options: GatewayOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        return socket.create_server((options.host, options.port), family=family)
    except OSError as error:
        raise ConflictError(
            f"the gateway cannot listen on port {options.port} of {options.host}: {error}; use --port"
        ) from error


def _ready_line(options: GatewayOptions, listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    scheme = "https" if options.tls_cert else "http"
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"regroup gateway serves at {scheme}://{address} for the Ray cluster {options.ray_address}"
