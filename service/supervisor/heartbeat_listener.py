"""A listener for the heartbeats that agents send in addition to their reports."""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Callable, Sequence

from regroup.workers.contract.heartbeat import Listener


class HeartbeatListener(asyncio.DatagramProtocol):
    """Calls `on_sign(node_id)` for each heartbeat with the secret that this supervisor sends to its agents."""

    def __init__(self, on_heartbeat: Callable[[str], None]) -> None:
        self._on_heartbeat = on_heartbeat
        self._transport: asyncio.DatagramTransport | None = None
        self.listener: Listener | None = None
        """Address of the listener. None before `listen` and if no port is free: then only reports count."""

    async def listen(self, host: str, ports: Sequence[int] = (0,)) -> None:
        """Listen on the first free port of `ports` (0: any) on `host`."""
        sock = _bound(host, ports)
        if sock is None:
            return
        self._transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: self, sock=sock)
        self.listener = Listener(host, sock.getsockname()[1], secrets.token_hex(16))

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Process a datagram. Any process may send any bytes."""
        if self.listener is not None and (node_id := self.listener.sender(data)) is not None:
            self._on_heartbeat(node_id)

    def close(self) -> None:
        """Stop listening."""
        self.listener = None
        if self._transport is not None:
            self._transport.close()


def _bound(host: str, ports: Sequence[int]) -> socket.socket | None:
    for port in ports:
        with contextlib.suppress(OSError):
            sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
            sock.setblocking(False)
            try:
                sock.bind((host, port))
            except OSError:
                sock.close()
                raise
            return sock
    return None
