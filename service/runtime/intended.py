"""What the controller wants of a live job, and waiting that ends when it wants something else."""

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from regroup.service.runtime.gang import AgentLostError
from regroup.service.runtime.recovering import Ended
from regroup.service.states import Reason


class Moved(Exception):
    """The job was given other nodes: carried to whoever makes its next life, which begins with them."""

    def __init__(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        super().__init__("the job was given other nodes")
        self.nodes = nodes


class Intended:
    """Taken at any time; acted upon where the job's life looks or waits."""

    def __init__(self, nodes: Collection[str]) -> None:
        """`nodes`: those the job has."""
        self.lost: tuple[str, ...] = ()
        """Nodes that are waited for: their agents come up again, or others take their place."""
        self.ends = False
        """The job is to end, whatever its nodes are."""
        self._nodes = frozenset(nodes)
        self._end: Ended | None = None
        self._moved: Moved | None = None
        self._no_spare = ""
        self._changed = asyncio.Event()

    def take(self, intents: Mapping[str, Any]) -> bool:
        """Take `cancel`, `end: {reason, message}`, `nodes` (all that the job is to have), and `no_spare` (why none can
        take a lost one's place); returns whether anything is to be done."""
        if self._end is None and intents.get("cancel"):
            self._end = Ended(Reason.CANCELLED_BY_USER, "cancelled on request")
        elif self._end is None and (end := intents.get("end")):
            self._end = Ended(Reason(end["reason"]), end.get("message", ""))
        self.ends = self._end is not None
        nodes = intents.get("nodes")
        if nodes and frozenset(str(node["node_id"]) for node in nodes) != self._nodes:
            self._moved = Moved(nodes)
        self._no_spare = intents.get("no_spare", "") if self.lost else ""
        if self.stop() is not None:
            self._changed.set()
        return self.stop() is not None

    def stop(self) -> Exception | None:
        """Why what is going on is not to go on."""
        if self._no_spare and not self._end and not self._moved:
            return AgentLostError(self.lost[0], self._no_spare)
        return self._end or self._moved

    async def unless(self, work: Any, *, moved: bool = True) -> Any:
        """Wait for `work`, but not longer than until something else is wanted; `moved`: be it other nodes.

        Raises:
            Ended: the job is to end.
            Moved: it is to go on on other nodes.
            AgentLostError: a node was lost, and there is none to take its place.
        """
        task = asyncio.ensure_future(work)
        while not task.done() and not self._stops(moved):
            self._changed.clear()
            changed = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait({task, changed}, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
        if task.done():
            return await task
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        stop = self.stop()
        assert stop is not None, "only that ended the wait"
        raise stop

    def _stops(self, moved: bool) -> bool:
        return self.ends if not moved else self.stop() is not None
