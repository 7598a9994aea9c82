"""Time of each agent's last heartbeat."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from regroup.service.ports.agents import AgentLostError

LOST_S = 5.0
"""Seconds of silence after which an agent is lost."""
UNREPORTED_S = 20.0
"""Seconds after an agent's last report in which heartbeats count. A network that loses packets delays reports, but an
agent that cannot report for longer counts as lost."""
_PAUSED_S = 2.0
_POLL_S = 0.5
T = TypeVar("T")


class Liveness:
    """Distinguishes silent agents from a listener that was itself paused (stopped, or without CPU time)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, is_disabled: bool = False) -> None:
        """Initialize the tracker. `is_deaf` ignores silence, for a fault rehearsal."""
        self._clock, self._is_disabled = clock, is_disabled
        self._received_s: dict[str, float] = {}
        self._reported_s: dict[str, float] = {}
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
        if node_id in self._received_s and now - self._reported_s[node_id] < UNREPORTED_S:
            self._received_s[node_id] = now

    def silent_nodes(self) -> list[str]:
        """Return the agents that were silent for `LOST_S`. Call it at least once per second."""
        now, looked_s = self._clock(), self._polled_s
        self._polled_s = now
        if now - looked_s > _PAUSED_S:
            # The listener was paused, so messages of the agents are still unread.
            for said_s in (self._received_s, self._reported_s):
                said_s.update({node: max(then, now - LOST_S / 2) for node, then in said_s.items()})
        return [node for node, heard in self._received_s.items() if now - heard > LOST_S and not self._is_disabled]

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
