"""Evidence of incidents: agents upload what they observed of a broken generation to durable storage.

The agents collect it before they kill the ranks. The upload takes time, so it waits until training continues.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from regroup.service.domain.job_events import IncidentRevised, decoded
from regroup.service.ports.agents import AgentError, AgentLostError
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.job_state.incidents import Incident
from regroup.service.supervisor.job_state.supervisor_state import SupervisorState

MAX_INCIDENTS = 20
"""Number of the newest incidents of a job whose evidence is retained."""
_UNHURRIED_S = 60.0
"""Longest wait for the first step, in seconds. A script may continue without taking a step."""
_LEAVE_TIMEOUT_S = 30.0
_LAST_S = 10.0
"""Longest time in seconds that the end of a job waits for evidence."""


class Evidence:
    """Incidents with pending and with uploaded evidence. A restarted supervisor restores them from the journal."""

    def __init__(self, gang: Gang, state: SupervisorState, nodes_of: Callable[[int], dict[str, str]]) -> None:
        """Initialize the collection. `nodes_of` maps a generation to its nodes, id → name."""
        self._gang, self._state, self._nodes_of = gang, state, nodes_of
        self._incidents: list[Incident] = []
        """Oldest first."""
        self._work: asyncio.Task[None] | None = None

    def replay(self, past: Sequence[SupervisorEvent]) -> None:
        """Restore the incidents of earlier incarnations of this supervisor. Call it after the state's `replay`."""
        recorded = {event.id: event for event in decoded(past, IncidentRevised)}
        open_incident = self._state.incident
        self._incidents = [
            open_incident if open_incident and open_incident.id == name else Incident.from_event(event)
            for name, event in recorded.items()
        ]
        if self._pending:
            self._start()

    def add(self, incident: Incident) -> None:
        """Add an incident whose ranks are dead, so that its nodes have evidence."""
        self._incidents.append(incident)
        self._start()

    async def upload_pending(self) -> None:
        """Upload all pending evidence now, from the nodes that answer in time. Their agents stop next."""
        self.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_S):
                await self._upload_all()

    def stop(self) -> None:
        """Stop. Another incarnation may continue the uploads."""
        if self._work is not None:
            self._work.cancel()
            self._work = None

    @property
    def _pending(self) -> list[Incident]:
        return [incident for incident in self._incidents if incident.evidence_bytes is None]

    def _start(self) -> None:
        self.stop()
        self._work = asyncio.get_running_loop().create_task(self._upload_after_recovery())

    async def _upload_after_recovery(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_UNHURRIED_S):
                await self._state.recovered.wait()
        await self._upload_all()

    async def _upload_all(self) -> None:
        for incident in self._pending:
            await self._upload(incident)
        for incident in [each for each in self._incidents if each.evidence_bytes][:-MAX_INCIDENTS]:
            await self._remove(incident)

    async def _upload(self, incident: Incident) -> None:
        nodes = self._nodes_of(incident.generation)
        sizes = await asyncio.gather(*(self._upload_from(node, incident) for node in nodes))
        incident.evidence_missing = {
            name: size for name, size in zip(nodes.values(), sizes, strict=True) if isinstance(size, str)
        }
        incident.evidence_bytes = sum(size for size in sizes if isinstance(size, int))
        await asyncio.shield(self._state.revise(incident))

    async def _upload_from(self, node: str, incident: Incident) -> int | str:
        """Return the size of a node's evidence in bytes, or why there is none."""
        if node not in self._gang.configs:
            return "the node was lost"
        agent = self._gang.agents.agent(node, timeout_s=_LEAVE_TIMEOUT_S)
        try:
            size_bytes = await agent.upload_evidence(incident.generation, incident.id)
        except AgentLostError as error:
            return str(error)
        except AgentError as error:
            return error.message
        return size_bytes or "its agent died before it uploaded the evidence"

    async def _remove(self, incident: Incident) -> None:
        agent = self._gang.agents.agent(next(iter(self._gang.configs)), timeout_s=_LEAVE_TIMEOUT_S)
        with contextlib.suppress(AgentLostError, AgentError, OSError):
            await agent.remove_evidence([incident.id])
            incident.evidence_bytes = 0
            names = self._nodes_of(incident.generation).values()
            incident.evidence_missing = dict.fromkeys(names, "it was removed in favor of newer incidents")
            await self._state.revise(incident)
