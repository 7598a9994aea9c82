"""The supervisor as a Ray actor: light, because whoever gets a handle of it imports this module.

Agents do so with their first report, while their ranks wait for them; what a supervisor needs takes a third of a second
to import.
"""

from typing import Any


class SupervisorActor:
    """Calls from agents (`report`, `grant_fault`) and from the controller (the others)."""

    def __init__(self, payload: dict[str, Any]) -> None:
        from ray.util import get_node_ip_address

        from regroup.service.ray_adapter.agents import RayAgents, RayRecords
        from regroup.service.ray_adapter.metrics import RayMetrics
        from regroup.service.supervisor.supervisor import Adapters, Supervisor

        adapters = Adapters(
            agents=RayAgents,
            records=RayRecords(),
            export_metrics=lambda payload: RayMetrics(payload).take,
            address=get_node_ip_address,
        )
        self._supervisor = Supervisor(payload, adapters)

    def __repr__(self) -> str:
        return repr(self._supervisor)

    async def sync(self, request: dict[str, Any]) -> dict[str, Any]:
        """Take intents and acknowledgements, give events; a long poll."""
        return await self._supervisor.sync(request)

    async def report(self, report: dict[str, Any]) -> dict[str, Any]:
        """Take an agent's news; returns what was received and what the database has."""
        return await self._supervisor.report(report)

    async def grant_fault(self, index: int, do: str) -> bool:
        """Whether a rehearsed fault may strike."""
        return await self._supervisor.grant_fault(index, do)

    async def read_log(self, generation: int, rank: int, stream: str, offset: int, limit: int) -> dict[str, Any] | None:
        """A piece of a rank's output; None where no node has it."""
        return await self._supervisor.read_log(generation, rank, stream, offset, limit)

    async def stacks(self) -> dict[str, Any]:
        """Rank → where every thread of it is now."""
        return await self._supervisor.stacks()

    async def agents(self) -> dict[str, Any]:
        """Status of every agent, for people and tests."""
        return await self._supervisor.agents()

    async def shutdown(self) -> None:
        """End the agents; the caller kills this actor when it has returned."""
        await self._supervisor.shutdown()
