"""A gateway in this event loop, in front of any cluster."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import uvicorn

from regroup.service.gateway.app import create_app
from regroup.service.local.asgi_server import AsgiServer, load_certificate
from regroup.service.ports.cluster import Cluster

TOKEN = "token-of-the-gateway-of-tests"


@contextlib.asynccontextmanager
async def serve_gateway(
    cluster: Cluster, *, health: Callable[[], str] = str, certificate: Path | None = None, key: Path | None = None
) -> AsyncIterator[str]:
    """Serve until the block ends; yield the URL."""
    config = uvicorn.Config(create_app(cluster, TOKEN, health), log_config=None, ws="none", timeout_graceful_shutdown=1)
    config.load()
    config.ssl = None if certificate is None else load_certificate(certificate, key)
    server = AsgiServer(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await server.up.wait()
        try:
            yield f"http{'s' if certificate else ''}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving
