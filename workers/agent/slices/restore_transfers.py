"""Execute the transfers of a node: copies within its memory in threads, fetches through the reader of the state."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from regroup.workers.agent.slices.saved_state import SavedState, SliceRead
from regroup.workers.agent.transfer.region_copy import Copy, copy_all
from regroup.workers.state.slices.box_table import BoxTable
from regroup.workers.state.slices.held_state import Holder
from regroup.workers.state.slices.planner import plan_transfers
from regroup.workers.state.slices.transfer_plan import TransferPlan

_MOST_READS = 8
"""Holders from which a node reads at the same time. Each of them needs memory for a few chunks."""
_MOST_COPIES = 4
"""Threads that copy. Two of them use most of the bandwidth of a memory."""


async def fill_buffers(
    state: SavedState,
    needed: Mapping[int, BoxTable],
    buffers: Mapping[int, memoryview],
    node_number: int,
    expect: Callable[[int], None] = lambda nbytes: None,
) -> TransferPlan:
    """Bring the ranks of a node the parts of a state that they need, and return the plan that was executed.

    Args:
        state: state to restore.
        needed: rank → what it needs, with positions in its buffer.
        buffers: rank → its buffer.
        node_number: number of this node.
        expect: receives the number of bytes that will be read from other nodes or from storage.

    Raises:
        StateError: The state does not have what is needed.
        StateLostError: The state can no longer be read.
    """
    plan = await asyncio.to_thread(plan_transfers, state.held, needed, near=state.near, node_number=node_number)
    copies, reads = await asyncio.to_thread(_resolve, plan, state, buffers)
    expect(await asyncio.to_thread(state.reader.total_bytes, reads))
    free = asyncio.Semaphore(_MOST_READS)

    async def read(holder: Holder) -> None:
        async with free:
            await state.reader.read(holder, reads[holder])

    # Nodes read from different holders first, so that no holder serves all of them at once.
    holders = list(reads)
    first = node_number % max(1, len(holders))
    await _all(*(read(holder) for holder in [*holders[first:], *holders[:first]]), *_copying(copies))
    passes = [(buffers[each.source_rank], each.source, buffers[each.rank], each.target) for each in plan.passes()]
    await _all(*_copying(passes))
    return plan


def _resolve(
    plan: TransferPlan, state: SavedState, buffers: Mapping[int, memoryview]
) -> tuple[list[Copy], dict[Holder, list[SliceRead]]]:
    """Return the copies within the node, and the reads by holder."""
    copies = [(state.near[each.holder], each.source, buffers[each.rank], each.target) for each in plan.copies()]
    reads: dict[Holder, list[SliceRead]] = {}
    for each in plan.fetches():
        reads.setdefault(each.holder, []).append(SliceRead(each.source, buffers[each.rank], each.target))
    return copies, reads


def _copying(copies: Sequence[Copy]) -> list[Coroutine[Any, Any, None]]:
    threads = min(_MOST_COPIES, os.cpu_count() or 1)
    parts = [copies[first::threads] for first in range(threads)]
    return [asyncio.to_thread(copy_all, part) for part in parts if part]


async def _all(*work: Awaitable[None]) -> None:
    """Wait for all work, and raise the first error when no thread uses the memory any more."""
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
