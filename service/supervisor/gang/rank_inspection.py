"""Inspection of all ranks of a job on all its nodes at once."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from regroup.service.ports.agents import AgentLostError
from regroup.service.supervisor.gang.gang import Gang
from regroup.workers.contract.agent_api import AgentApi
from regroup.workers.contract.agent_records import RankStack
from regroup.workers.contract.codec import plain

INSPECT_TIMEOUT_S = 5.0


async def inspect_ranks(gang: Gang, without: Collection[str] = ()) -> dict[int, Any]:
    """Return rank → where it is (`RankInspection`, as plain data), of nodes that answer; they keep it as evidence.

    Args:
        without: nodes that are not inspected.
    """
    return await _each(gang, lambda agent: agent.inspect_ranks(), without)


async def dump_stacks(gang: Gang) -> dict[int, Any]:
    """Return rank → where every thread of it is (`RankStack`, as plain data), of the nodes that answer in time."""
    return await _each(gang, lambda agent: agent.dump_stacks())


async def _each(
    gang: Gang, call: Callable[[AgentApi], Awaitable[Mapping[int, RankStack]]], without: Collection[str] = ()
) -> dict[int, Any]:
    async def one(node: str) -> Mapping[int, RankStack]:
        with contextlib.suppress(AgentLostError):
            return await call(gang.agents.agent(node, timeout_s=INSPECT_TIMEOUT_S))
        return {}

    found = await asyncio.gather(*(one(node) for node in gang.configs if node not in without))
    return {rank: plain(place) for each in found for rank, place in each.items()}
