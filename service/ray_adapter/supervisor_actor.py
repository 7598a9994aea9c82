"""The supervisor as a Ray actor. The module is light because each process with a handle of the actor imports it.

Agents import it with their first report, while their ranks wait for them. The supervisor's own modules take a third of
a second to import.
"""

from typing import Any


class SupervisorActor:
    """The actor. Agents call `report` and `authorize_fault`; the controller calls the other methods."""

    def __init__(self, payload: dict[str, Any]) -> None:
        from ray.util import get_node_ip_address

        from regroup.service.ray_adapter.agents import RayAgents, RayRecords
        from regroup.service.ray_adapter.metrics import RayMetrics
        from regroup.service.supervisor.supervisor import Adapters, Supervisor
        from regroup.workers.os import process_user

        process_user.hide_memory()
        adapters = Adapters(
            agents=RayAgents,
            records=RayRecords(),
            export_metrics=lambda payload: RayMetrics(payload).record,
            address=get_node_ip_address,
        )
        self._supervisor = Supervisor(payload, adapters)

    def __repr__(self) -> str:
        return repr(self._supervisor)

    async def sync(self, request: dict[str, Any]) -> dict[str, Any]:
        """Receive intents and acknowledgements, and return events; a long poll."""
        return await self._supervisor.sync(request)

    async def report(self, report: dict[str, Any]) -> dict[str, Any]:
        """Receive an agent's report. Return the numbers of the messages that are received and that are durable."""
        return await self._supervisor.report(report)

    async def authorize_fault(self, index: int, do: str) -> bool:
        """Return whether a planned fault may be injected."""
        return await self._supervisor.authorize_fault(index, do)

    async def read_log(self, generation: int, rank: int, stream: str, offset: int, limit: int) -> dict[str, Any] | None:
        """Return a chunk of a rank's output, or None if no node has it."""
        return await self._supervisor.read_log(generation, rank, stream, offset, limit)

    async def stacks(self) -> dict[str, Any]:
        """Return the stacks of all threads of each rank."""
        return await self._supervisor.stacks()

    async def agents(self) -> dict[str, Any]:
        """Return the status of every agent, for people and tests."""
        return await self._supervisor.agents()

    async def shutdown(self) -> None:
        """Stop the agents. The caller kills this actor afterwards."""
        await self._supervisor.shutdown()
