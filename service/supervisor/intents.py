"""What the controller wants of a live job, and waiting that ends when it wants something else."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from regroup.service.domain.layout import Layout
from regroup.service.domain.states import Reason
from regroup.service.ports.agents import AgentLostError
from regroup.service.ports.assignment import NodeAssignment, PlannedChange
from regroup.service.ports.sync import Intents
from regroup.service.supervisor.outcomes import Relocated, Shape, shape_of
from regroup.service.supervisor.recovery import Finished


class IntentTracker:
    """Taken at any time; acted upon where the job's life looks or waits."""

    def __init__(self, names: Mapping[str, str], shape: Shape) -> None:
        """`names`: node id → name, of the nodes the job has; `shape`: with how many ranks, and how split."""
        self.lost_nodes: tuple[str, ...] = ()
        """Nodes that are waited for: their agents come up again, or others take their place."""
        self.is_ending = False
        """The job is to end, whatever its nodes are."""
        self.change: PlannedChange | None = None
        self.announced: dict[str, str] = {}
        """Node id → what was said of its leaving, in this life."""
        self._names, self._shape = names, shape
        self._end: Finished | None = None
        self._desired_nodes: tuple[NodeAssignment, ...] | None = None
        self._layout: Layout = shape[1]
        self._no_spare = ""
        self._changed = asyncio.Event()

    def update(self, intents: Intents) -> bool:
        """Record what the controller wants now; return whether the job has to act on it."""
        if self._end is None and intents.cancel:
            self._end = Finished(Reason.CANCELLED_BY_USER, "cancelled on request")
        elif self._end is None and (end := intents.end):
            self._end = Finished(end.reason, end.message)
        self.is_ending = self._end is not None
        nodes, self._layout = intents.nodes, intents.layout or self._shape[1]
        self._desired_nodes = nodes if nodes and shape_of(nodes, self._layout) != self._shape else None
        self.change = intents.change
        if self.change is not None:
            self.announced |= dict.fromkeys(self.change.leaving, self.change.why)
        self._no_spare = intents.no_spare if self.lost_nodes else ""
        if self.interruption() is not None:
            self._changed.set()
        return self.interruption() is not None or self.change is not None

    @property
    def planned_relocation(self) -> Relocated | None:
        """Other nodes or another size, for which there is time: what the job leaves is still there, and so is all
        else."""
        return self._relocation if self.change is not None and not self.lost_nodes else None

    def interruption(self) -> Exception | None:
        """Why what is going on is not to go on."""
        moved = self._relocation if self.planned_relocation is None else None
        if self._no_spare and not self._end and not moved:
            return AgentLostError(self.lost_nodes[0], self._no_spare)
        return self._end or moved

    async def interruptible(self, work: Any, *, by_relocation: bool = True) -> Any:
        """Wait for `work`, but not longer than until something else is wanted; `moved`: be it other nodes.

        Raises:
            Ended: the job is to end.
            Moved: it is to go on on other nodes.
            AgentLostError: a node was lost, and there is none to take its place.
        """
        task = asyncio.ensure_future(work)
        while (stop := self.interruption() if by_relocation else self._end) is None and not task.done():
            self._changed.clear()
            changed = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait({task, changed}, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
        if stop is None or task.done():
            return await task
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        raise stop

    @property
    def _relocation(self) -> Relocated | None:
        if self._desired_nodes is None:
            return None
        leaving = self.change.leaving if self.change is not None else {}
        if self.change is not None and self.change.reason is Reason.RESIZED:
            leaving = self._names  # whatever it has no seat on any more still holds its state
        left = self._names.keys() - {node.node_id for node in self._desired_nodes}
        stay = {node: name for node, name in leaving.items() if node in left and node not in self.lost_nodes}
        return Relocated(self._desired_nodes, self._layout, stay)
