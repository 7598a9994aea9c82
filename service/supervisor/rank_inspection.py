"""Where the ranks of a job are, asked of all its nodes at once."""

import asyncio
import contextlib
from collections.abc import Collection
from typing import Any

from regroup.service.ports.agents import AgentLostError
from regroup.service.supervisor.gang import Gang

LOOK_TIMEOUT_S = 5.0


async def look(gang: Gang, method: str = "look", without: Collection[str] = ()) -> dict[int, Any]:
    """Rank → where it is, of the nodes that answer in time.

    Args:
        method: `look` asks everything that ranks can tell, and the nodes keep it as evidence; `stacks` only shows.
        without: nodes that are not asked.
    """

    async def one(node: str) -> dict[str, Any]:
        with contextlib.suppress(AgentLostError):
            return await gang.agents.call(node, method, timeout_s=LOOK_TIMEOUT_S)
        return {}

    found = await asyncio.gather(*(one(node) for node in gang.configs if node not in without))
    return {int(rank): place for each in found for rank, place in each.items()}
