"""Sets of training state in the memory of nodes, as their agents describe them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from regroup.service.policy.recovery.restore_source import NodeSet
from regroup.service.ports.agents import AgentLostError, Agents
from regroup.workers.contract.agent_api import AgentApi
from regroup.workers.contract.held_sets import HeldSet

TIMEOUT_S = 60.0


async def find(
    agents: Agents, nodes: Iterable[str], call: Callable[[AgentApi], Awaitable[list[HeldSet]]]
) -> list[NodeSet]:
    """Return the sets of all nodes that answer a call."""

    async def one(node: str) -> list[NodeSet]:
        try:
            found = await call(agents.agent(node, timeout_s=TIMEOUT_S))
        except AgentLostError:
            return []
        return [NodeSet(node, held) for held in found]

    found = await asyncio.gather(*(one(node) for node in nodes))
    return [each for sets in found for each in sets]


async def verify(agents: Agents, nodes: Iterable[str], generation: int, step: int) -> list[NodeSet]:
    """Return the intact shards of a set on these nodes. Each node reads its own."""
    found = await find(agents, nodes, lambda agent: agent.verify_shards(generation, step))
    return [NodeSet(each.node_id, replace(each.held, is_verified=True)) for each in found]
