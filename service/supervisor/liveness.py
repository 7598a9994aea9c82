"""When each agent was last heard of."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from regroup.service.ports.agents import AgentLostError

LOST_S = 5.0
"""An agent silent for so long is lost."""
UNREPORTED_S = 20.0
"""So long after an agent's last report its other signs of life count: a network that loses packets makes reports late,
but an agent that cannot report at all is as good as lost."""
_ASLEEP_S = 2.0
_LOOK_S = 0.5
T = TypeVar("T")


class Liveness:
    """Tells silent agents from a listener that was itself asleep (stopped, or starved of CPU)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, is_deaf: bool = False) -> None:
        """`is_deaf`: in a rehearsal silence is not noticed."""
        self._clock, self._is_deaf = clock, is_deaf
        self._heard_s: dict[str, float] = {}
        self._reported_s: dict[str, float] = {}
        self._looked_s = clock()

    def expect(self, nodes: Iterable[str]) -> None:
        """These agents are up now."""
        self._looked_s = self._clock()
        self._heard_s = dict.fromkeys(nodes, self._looked_s)
        self._reported_s = dict(self._heard_s)

    def report(self, node_id: str) -> None:
        """An agent has reported; one that is not expected, of a node that comes or goes, is nobody's concern."""
        if node_id in self._heard_s:
            self._heard_s[node_id] = self._reported_s[node_id] = self._clock()

    def sign(self, node_id: str) -> None:
        """An agent has given another sign of life."""
        now = self._clock()
        if node_id in self._heard_s and now - self._reported_s[node_id] < UNREPORTED_S:
            self._heard_s[node_id] = now

    def silent(self) -> list[str]:
        """Agents not heard of for `LOST_S`. Call it at least every second."""
        now, looked_s = self._clock(), self._looked_s
        self._looked_s = now
        if now - looked_s > _ASLEEP_S:
            # Nobody listened: what the agents said meanwhile is still to be read.
            for said_s in (self._heard_s, self._reported_s):
                said_s.update({node: max(then, now - LOST_S / 2) for node, then in said_s.items()})
        return [node for node, heard in self._heard_s.items() if now - heard > LOST_S and not self._is_deaf]

    async def unless_silent(self, nodes: Iterable[str], work: Awaitable[T]) -> T:
        """Wait for `work` that one agent does with the help of all these nodes, while all are heard of.

        Raises:
            AgentLostError: one fell silent: what waits for its node would wait for ever.
        """
        self.expect(nodes)
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=_LOOK_S)
                if silent := [] if task.done() else self.silent():
                    message = f"agent on node {silent[0][:8]} fell silent during data preparation"
                    raise AgentLostError(silent[0], message)
            return await task
        finally:
            task.cancel()
