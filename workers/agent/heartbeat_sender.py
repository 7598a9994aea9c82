"""Heartbeats from an agent to its supervisor."""

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from typing import Any

from regroup.workers.contract.heartbeat import EVERY_S, Listener


class HeartbeatSender:
    """Sends one datagram every `EVERY_S` from the event loop of the agent. An agent that hangs sends none."""

    def __init__(self) -> None:
        self._node_id = ""
        self._listener: Listener | None = None
        self._socket: socket.socket | None = None

    def set_listener(self, node_id: str, address: Mapping[str, Any] | None) -> None:
        """Send heartbeats of this node's agent to a listener from now on; None: send none."""
        self._node_id = node_id
        listener = None if address is None else Listener.from_json(address)
        if listener == self._listener:
            return
        self.close()
        self._listener = listener
        if listener is not None:
            self._socket = socket.socket(socket.AF_INET6 if ":" in listener.host else socket.AF_INET, socket.SOCK_DGRAM)
            self._socket.setblocking(False)

    async def send(self) -> None:
        """Send heartbeats until this task is cancelled."""
        while True:
            if self._listener is not None and self._socket is not None:
                with contextlib.suppress(OSError):  # no route or a firewall: reports alone count as liveness
                    datagram = self._listener.datagram(self._node_id)
                    self._socket.sendto(datagram, (self._listener.host, self._listener.port))
            await asyncio.sleep(EVERY_S)

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
        self._socket = self._listener = None
