"""When each agent was last heard of."""

import time
from collections.abc import Callable, Iterable

LOST_S = 5.0
"""An agent silent for so long is lost."""
_ASLEEP_S = 2.0


class Pulse:
    """Tells silent agents from a listener that was itself asleep (stopped, or starved of CPU)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard_s: dict[str, float] = {}
        self._looked_s = clock()

    def expect(self, nodes: Iterable[str]) -> None:
        """These agents are up now."""
        self._looked_s = self._clock()
        self._heard_s = dict.fromkeys(nodes, self._looked_s)

    def beat(self, node_id: str) -> None:
        """An agent was heard of; one that is not expected, of a node that comes or goes, is nobody's concern."""
        if node_id in self._heard_s:
            self._heard_s[node_id] = self._clock()

    def silent(self) -> list[str]:
        """Agents not heard of for `LOST_S`. Call it at least every second."""
        now, looked_s = self._clock(), self._looked_s
        self._looked_s = now
        if now - looked_s > _ASLEEP_S:
            # Nobody listened: what the agents said meanwhile is still to be read.
            self._heard_s = {node: max(heard, now - LOST_S / 2) for node, heard in self._heard_s.items()}
        return [node for node, heard in self._heard_s.items() if now - heard > LOST_S]
