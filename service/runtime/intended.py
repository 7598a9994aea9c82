"""What the controller wants of a live job, and waiting that ends when it wants something else."""

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regroup.service.runtime.agents import AgentLostError
from regroup.service.runtime.moved import Moved
from regroup.service.runtime.recovering import Ended
from regroup.service.states import Reason


@dataclass(frozen=True)
class Drain:
    """Nodes of the job are about to leave."""

    leaving: Mapping[str, str]
    """Node id → name."""
    why: str
    noticed_s: float
    deadline_s: float | None
    gives_up: bool
    """There are no others for them."""
    reason: Reason = Reason.DRAINED
    """`preempted`: it is not that they leave, another job needs them."""

    @property
    def evidence(self) -> Mapping[str, Any]:
        """As an incident shows it."""
        return {"nodes": sorted(self.leaving.values()), "noticed_s": self.noticed_s, "deadline_s": self.deadline_s}


class Intended:
    """Taken at any time; acted upon where the job's life looks or waits."""

    def __init__(self, nodes: Collection[str]) -> None:
        """`nodes`: those the job has."""
        self.lost: tuple[str, ...] = ()
        """Nodes that are waited for: their agents come up again, or others take their place."""
        self.ends = False
        """The job is to end, whatever its nodes are."""
        self.drain: Drain | None = None
        self.announced: dict[str, str] = {}
        """Node id → what was said of its leaving, in this life."""
        self._nodes = frozenset(nodes)
        self._end: Ended | None = None
        self._moved: Sequence[Mapping[str, Any]] | None = None
        self._no_spare = ""
        self._changed = asyncio.Event()

    def take(self, intents: Mapping[str, Any]) -> bool:
        """Take `cancel`, `end: {reason, message}`, `nodes` (all that the job is to have), `drain` (which of its own are
        about to leave), and `no_spare` (why none can take a lost one's place); returns whether anything is to be done.
        """
        if self._end is None and intents.get("cancel"):
            self._end = Ended(Reason.CANCELLED_BY_USER, "cancelled on request")
        elif self._end is None and (end := intents.get("end")):
            self._end = Ended(Reason(end["reason"]), end.get("message", ""))
        self.ends = self._end is not None
        nodes = intents.get("nodes") or ()
        is_other = frozenset(str(node["node_id"]) for node in nodes) != self._nodes
        self._moved = nodes if nodes and is_other else None
        drain = intents.get("drain")
        self.drain = _drain(drain) if drain else None
        if self.drain is not None:
            self.announced |= dict.fromkeys(self.drain.leaving, self.drain.why)
        self._no_spare = intents.get("no_spare", "") if self.lost else ""
        if self.stop() is not None:
            self._changed.set()
        return self.stop() is not None or self.drain is not None

    @property
    def planned(self) -> Moved | None:
        """Other nodes, for which there is time: those that the job leaves are still there, and so are all others."""
        return self._elsewhere if self.drain is not None and not self.lost else None

    def stop(self) -> Exception | None:
        """Why what is going on is not to go on."""
        moved = self._elsewhere if self.planned is None else None
        if self._no_spare and not self._end and not moved:
            return AgentLostError(self.lost[0], self._no_spare)
        return self._end or moved

    async def unless(self, work: Any, *, moved: bool = True) -> Any:
        """Wait for `work`, but not longer than until something else is wanted; `moved`: be it other nodes.

        Raises:
            Ended: the job is to end.
            Moved: it is to go on on other nodes.
            AgentLostError: a node was lost, and there is none to take its place.
        """
        task = asyncio.ensure_future(work)
        while (stop := self.stop() if moved else self._end) is None and not task.done():
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
    def _elsewhere(self) -> Moved | None:
        if self._moved is None:
            return None
        leaving = self.drain.leaving if self.drain is not None else {}
        given = {str(node["node_id"]) for node in self._moved}
        stay = {node: name for node, name in leaving.items() if node in self._nodes - given and node not in self.lost}
        return Moved(self._moved, stay)


def _drain(told: Mapping[str, Any]) -> Drain:
    reason = Reason(told.get("reason", Reason.DRAINED))
    return Drain(told["leaving"], told["why"], told["noticed_s"], told["deadline_s"], told["gives_up"], reason)
