"""Calls to agents for mirrors."""

from collections.abc import Mapping

from regroup.service.supervisor.gang import CALL_TIMEOUT_S, Gang, gather_all
from regroup.service.supervisor.generations import Generation

MIRROR_TIMEOUT_S = 3600.0


class MirrorRpc:
    """Calls to the agents of one gang."""

    def __init__(self, gang: Gang) -> None:
        self._gang = gang

    async def request_set(self, generation: Generation) -> None:
        """Request that all ranks retain the next set for mirrors. They report it when they do.

        Raises:
            AgentLostError, AgentError: the node of the leading rank does not answer.
        """
        leader = self._gang.agents.agent(generation.nodes[0], timeout_s=CALL_TIMEOUT_S)
        await leader.request_mirror(generation.number)

    async def send(
        self, generation: Generation, step: int, pairs: Mapping[str, str], bytes_per_s: float | None
    ) -> None:
        """Let every node send its part of a retained set to its pair.

        Raises:
            AgentLostError, AgentError: one node failed, so no mirror of this set counts.
        """
        addresses = await self._gang.transfer_addresses(pairs.values())

        async def one(node: str) -> None:
            ranks = [place.rank for place in generation.on(node)]
            agent = self._gang.agents.agent(node, timeout_s=MIRROR_TIMEOUT_S)
            await agent.send_mirror(generation.number, step, ranks, addresses[pairs[node]], bytes_per_s)

        await gather_all(one(node) for node in generation.nodes)

    async def retain(self, generation: int, step: int) -> None:
        """Let every node that answers retain this set of mirrors and release all others."""
        await self._gang.call_reachable(lambda agent: agent.retain_mirror(generation, step))

    async def release_for(self, generation: int, step: int) -> None:
        """Let every node that answers release its mirrors before this set is sent."""
        await self._gang.call_reachable(lambda agent: agent.release_mirrors(generation, step))

    async def list_mirrored(self) -> list[tuple[int, int]]:
        """Return generation and step of the mirrored set of each node that has one.

        Raises:
            AgentLostError: a node does not answer.
        """
        statuses = await self._gang.call_all(lambda agent: agent.status(), timeout_s=CALL_TIMEOUT_S)
        return [status.mirrored for status in statuses.values() if status.mirrored]
