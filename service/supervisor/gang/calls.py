"""Calls to several agents at the same time."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any

from regroup.service.ports.agents import AgentLostError


async def gather_all(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    """Gather the results of all calls. Raise an error only after every call has ended; a lost agent goes first."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    if errors := [result for result in results if isinstance(result, BaseException)]:
        raise next((error for error in errors if isinstance(error, AgentLostError)), errors[0])
    return results
