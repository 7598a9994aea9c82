"""Sends signs of life to the supervisor that asked for them."""

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from typing import Any

from regroup.workers.contract.heartbeat import EVERY_S, Listener


class HeartbeatSender:
    """One datagram every `EVERY_S`, from the loop that does the agent's work: one that hangs sends none."""

    def __init__(self) -> None:
        self._node_id = ""
        self._listener: Listener | None = None
        self._socket: socket.socket | None = None

    def aim(self, node_id: str, where: Mapping[str, Any] | None) -> None:
        """Send them there from now on, as this node's agent; None: nobody listens."""
        self._node_id = node_id
        listener = None if where is None else Listener.from_json(where)
        if listener == self._listener:
            return
        self.close()
        self._listener = listener
        if listener is not None:
            self._socket = socket.socket(socket.AF_INET6 if ":" in listener.host else socket.AF_INET, socket.SOCK_DGRAM)
            self._socket.setblocking(False)

    async def send(self) -> None:
        """Send them until this task is cancelled."""
        while True:
            if self._listener is not None and self._socket is not None:
                with contextlib.suppress(OSError):  # no way there just now, or a firewall: reports count alone
                    datagram = self._listener.datagram(self._node_id)
                    self._socket.sendto(datagram, (self._listener.host, self._listener.port))
            await asyncio.sleep(EVERY_S)

    def close(self) -> None:
        """Give the socket back."""
        if self._socket is not None:
            self._socket.close()
        self._socket = self._listener = None
