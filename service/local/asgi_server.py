"""A web server as the main work of a process: its signals, its TLS and the number of its open files."""

import asyncio
import resource
import signal
import socket
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from regroup.service.domain.errors import ConflictError
from regroup.service.local.server_exit import end_within

END_S = 10.0
"""Longest time between a signal and the end of the process. `regroup down` waits longer."""
_DESCRIPTORS = 65_536


class AsgiServer(uvicorn.Server):
    """A uvicorn server that signals when it has started.

    It does not handle signals: uvicorn would raise them again before its process has closed everything else.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve, and set `up` if that succeeded."""
        for listener in sockets or ():
            send_at_once(listener)
        await super().startup(sockets)
        if self.started:
            self.up.set()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave the signals to the process."""
        yield


def send_at_once(listener: socket.socket) -> None:
    """Turn Nagle's algorithm off for the connections of a listener, which inherit this on Linux.

    asyncio does so only for sockets that were created with the number of the protocol, and neither `socket.socket` nor
    `socket.create_server` sets it. Otherwise an answer of two parts takes 40 ms.
    """
    if listener.family in (socket.AF_INET, socket.AF_INET6):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def stop_on_signals(stopping: asyncio.Event) -> None:
    """Set `stopping` at SIGINT or SIGTERM; the process ends within `END_S` after that."""

    def stop() -> None:
        if not stopping.is_set():
            stopping.set()
            end_within(END_S)

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)


def allow_descriptors() -> None:
    """Raise the limit of open files as far as this user may: each connection needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    requested = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < requested:
        resource.setrlimit(resource.RLIMIT_NOFILE, (requested, hard))


def load_certificate(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """Return the TLS context of a server.

    Raises:
        ConflictError: the certificate or its key cannot be used.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConflictError(f"the certificate {certificate} with the key {key} cannot be used: {error}") from error
    return context
