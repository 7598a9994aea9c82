"""Shards of training state in the memory of nodes, as their agents describe them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from regroup.service.policy.recovery.restore_source import Shard
from regroup.service.ports.agents import AgentLostError, Agents
from regroup.workers.contract.agent_api import AgentApi
from regroup.workers.contract.messages import HeldShard

TIMEOUT_S = 60.0


async def find(
    agents: Agents, nodes: Iterable[str], call: Callable[[AgentApi], Awaitable[list[HeldShard]]]
) -> list[Shard]:
    """Return the shards of all nodes that answer a call."""

    async def one(node: str) -> list[Shard]:
        try:
            found = await call(agents.agent(node, timeout_s=TIMEOUT_S))
        except AgentLostError:
            return []
        return [
            Shard(item.rank, item.world_size, item.generation, item.step, item.layout_hash, node, item.digests)
            for item in found
        ]

    found = await asyncio.gather(*(one(node) for node in nodes))
    return [shard for shards in found for shard in shards]


async def verify(agents: Agents, nodes: Iterable[str], generation: int, step: int) -> list[Shard]:
    """Return the intact shards of a set on these nodes. Each node reads its own."""
    return await find(agents, nodes, lambda agent: agent.verify_shards(generation, step))
