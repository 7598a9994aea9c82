"""The controller's intents for a live job, and waits that an intent interrupts."""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regroup.service.domain.layout import Layout
from regroup.service.domain.states import Reason
from regroup.service.ports.agents import AgentLostError
from regroup.service.ports.assignment import NodeAssignment, PlannedChange
from regroup.service.ports.sync import Intents, SyncRequest
from regroup.service.supervisor.job_state.outcomes import Finished, Relocated, Shape, shape_of


class SyncReader:
    """Reads requests of the controller. Each contains all nodes of the job, which rarely change."""

    def __init__(self) -> None:
        self._encoded: Any = None
        self._nodes: tuple[NodeAssignment, ...] = ()

    def read(self, request: Mapping[str, Any]) -> SyncRequest:
        """Return a request from its plain data. Nodes that are as in the request before are not parsed again."""
        intents = request["intents"]
        encoded = intents.get("nodes", ())
        if encoded != self._encoded:
            self._encoded, self._nodes = encoded, tuple(map(NodeAssignment.from_json, encoded))
        sync = SyncRequest.from_json({**request, "intents": {**intents, "nodes": ()}})
        return replace(sync, intents=replace(sync.intents, nodes=self._nodes))


class IntentTracker:
    """Tracks intents, which may arrive at any time. The lifecycle acts on them when it polls or waits."""

    def __init__(self, names: Mapping[str, str], shape: Shape) -> None:
        """Initialize the tracker.

        Args:
            names: node id → name of the job's nodes.
            shape: number of ranks per node, and layout.
        """
        self.lost_nodes: tuple[str, ...] = ()
        """Lost nodes for which the job waits: their agents start again, or other nodes replace them."""
        self.is_ending = False
        """True if the job must end, regardless of its nodes."""
        self.change: PlannedChange | None = None
        self.announced: dict[str, str] = {}
        """Node id → reason of its announced removal."""
        self._names, self._shape = names, shape
        self._end: Finished | None = None
        self._desired_nodes: tuple[NodeAssignment, ...] | None = None
        self._layout: Layout = shape[1]
        self._no_spare = ""
        self._changed = asyncio.Event()

    def update(self, intents: Intents) -> bool:
        """Set the controller's present intents. Return whether the job must act on them."""
        if self._end is None and intents.cancel:
            self._end = Finished(Reason.CANCELLED_BY_USER, "cancelled on request", is_requested=True)
        elif self._end is None and (end := intents.end):
            self._end = Finished(end.reason, end.message, is_requested=True)
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
        """A relocation before which the job can prepare the new nodes, because no node was lost."""
        return self._relocation if self.change is not None and not self.lost_nodes else None

    def interruption(self) -> Exception | None:
        """Return the exception that interrupts the present work, or None."""
        relocation = self._relocation if self.planned_relocation is None else None
        if self._no_spare and not self._end and not relocation:
            return AgentLostError(self.lost_nodes[0], self._no_spare)
        return self._end or relocation

    async def interruptible(self, work: Any, *, by_relocation: bool = True) -> Any:
        """Wait for `work` until an intent interrupts it. `by_relocation`: a relocation interrupts it too.

        Raises:
            Finished: the job must end.
            Relocated: the job must continue on other nodes.
            AgentLostError: a node was lost, and no other node can replace it.
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
            leaving = self._names  # the nodes on which the job has no more ranks still store its state
        removed = self._names.keys() - {node.node_id for node in self._desired_nodes}
        former = {node: name for node, name in leaving.items() if node in removed and node not in self.lost_nodes}
        return Relocated(self._desired_nodes, self._layout, former)
