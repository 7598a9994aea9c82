"""Heartbeats of agents: the listener that receives them, and the time of each agent's last one."""

import asyncio
import contextlib
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from regroup.service.ports.agents import AgentLostError
from regroup.workers.contract.heartbeat import Listener

LOST_S = 5.0
"""Seconds of silence after which an agent is lost."""
UNREPORTED_S = 20.0
"""Seconds after an agent's last report in which heartbeats count. A network that loses packets delays reports, but an
agent that cannot report for longer counts as lost."""
_GATHER_S = 0.03
"""Time for which datagrams gather. The buffer of the kernel holds those of a longer time."""
_MOST_DATAGRAMS, _DATAGRAM_BYTES = 1024, 2048
_PAUSED_S = 2.0
_POLL_S = 0.5
T = TypeVar("T")


class Liveness:
    """Distinguishes silent agents from a listener that was itself paused (stopped, or without CPU time)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, is_disabled: bool = False) -> None:
        """Initialize the tracker. `is_disabled` ignores silence, for a fault rehearsal."""
        self._clock, self._is_disabled = clock, is_disabled
        self._received_s: dict[str, float] = {}
        self._reported_s: dict[str, float] = {}
        self._beat_s: dict[str, float] = {}
        """Node → time of its newest heartbeat."""
        self._polled_s = clock()

    def expect(self, nodes: Iterable[str]) -> None:
        """Expect heartbeats of these agents from now on."""
        self._polled_s = self._clock()
        self._received_s = dict.fromkeys(nodes, self._polled_s)
        self._reported_s = dict(self._received_s)

    def record_report(self, node_id: str) -> None:
        """Record a report of an agent. Ignore unexpected agents, such as those of a node that joins."""
        if node_id in self._received_s:
            self._received_s[node_id] = self._reported_s[node_id] = self._clock()

    def record_heartbeat(self, node_id: str) -> None:
        """Record a heartbeat of an agent."""
        now = self._clock()
        self._beat_s[node_id] = now
        if node_id in self._received_s and now - self._reported_s[node_id] < UNREPORTED_S:
            self._received_s[node_id] = now

    def has_heartbeats(self, node_id: str) -> bool:
        """Return whether heartbeats of this agent arrive, so that it may report less often than it must give a sign."""
        return self._clock() - self._beat_s.get(node_id, -float("inf")) < LOST_S / 2

    def silent_nodes(self) -> list[str]:
        """Return the agents that were silent for `LOST_S`. Call it at least once per second."""
        now, polled_s = self._clock(), self._polled_s
        self._polled_s = now
        if now - polled_s > _PAUSED_S:
            # The listener was paused, so messages of the agents are still unread.
            for times_s in (self._received_s, self._reported_s):
                times_s.update({node: max(time_s, now - LOST_S / 2) for node, time_s in times_s.items()})
        return [node for node, time_s in self._received_s.items() if now - time_s > LOST_S and not self._is_disabled]

    async def run_while_alive(self, nodes: Iterable[str], work: Awaitable[T]) -> T:
        """Wait for `work` of one agent that needs all these nodes, while all of them send heartbeats.

        Raises:
            AgentLostError: one sends no heartbeat, so the work would never end.
        """
        self.expect(nodes)
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=_POLL_S)
                if silent := [] if task.done() else self.silent_nodes():
                    message = f"agent on node {silent[0][:8]} sent no heartbeat during data preparation"
                    raise AgentLostError(silent[0], message)
            return await task
        finally:
            task.cancel()


class HeartbeatListener:
    """Calls `on_heartbeat(node_id)` for each heartbeat with the secret that this supervisor sends to its agents.

    It reads what has arrived in a short time at once: 2,048 agents send 4,096 datagrams per second, and one turn of the
    event loop for each would cost more than the datagrams.
    """

    def __init__(self, on_heartbeat: Callable[[str], None]) -> None:
        self._on_heartbeat = on_heartbeat
        self._socket: socket.socket | None = None
        self.listener: Listener | None = None
        """Address of the listener. None before `listen` and if no port is free: then only reports count."""

    async def listen(self, host: str, ports: Sequence[int] = (0,)) -> None:
        """Listen on the first free port of `ports` (0: any) on `host`."""
        sock = _bind_first_free(host, ports)
        if sock is None:
            return
        self._socket = sock
        asyncio.get_running_loop().add_reader(sock, self._gather)
        self.listener = Listener(host, sock.getsockname()[1], secrets.token_hex(16))

    def close(self) -> None:
        """Stop listening."""
        self.listener = None
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _gather(self) -> None:
        """Read later what has arrived until then."""
        if self._socket is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._socket)
            loop.call_later(_GATHER_S, self._read)

    def _read(self) -> None:
        sock = self._socket
        if sock is None:
            return
        for _ in range(_MOST_DATAGRAMS):
            try:
                data = sock.recv(_DATAGRAM_BYTES)
            except BlockingIOError:
                break
            except OSError:
                continue  # of an earlier datagram
            self._receive(data)
        asyncio.get_running_loop().add_reader(sock, self._gather)

    def _receive(self, data: bytes) -> None:
        """Process a datagram. Any process may send any bytes."""
        if self.listener is not None and (node_id := self.listener.sender(data)) is not None:
            self._on_heartbeat(node_id)


def _bind_first_free(host: str, ports: Sequence[int]) -> socket.socket | None:
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
