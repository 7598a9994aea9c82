"""Execute the transfers of a node: copies within its memory in threads, fetches through the reader of the state."""

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
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
    on_filled: Callable[[int], None] = lambda rank: None,
) -> TransferPlan:
    """Bring the ranks of a node the parts of a state that they need, and return the plan that was executed.

    Ranks get their parts in the order of `needed` as far as possible, so that one copies while others still wait.

    Args:
        state: state to restore.
        needed: rank → what it needs, with positions in its buffer.
        buffers: rank → its buffer.
        node_number: number of this node.
        expect: receives the number of bytes that will be read from other nodes or from storage.
        on_filled: receives each rank whose buffer is complete and is not used any more.

    Raises:
        StateError: The state does not have what is needed.
        StateLostError: The state can no longer be read.
    """
    plan = await asyncio.to_thread(plan_transfers, state.held, needed, near=state.near, node_number=node_number)
    work = await asyncio.to_thread(_Work, plan, state, buffers)
    expect(await asyncio.to_thread(state.reader.total_bytes, work.reads))
    own_left, left = Counter(work.own_ranks()), Counter(work.ranks())
    free = asyncio.Semaphore(_MOST_READS)

    def end(rank: int) -> None:
        left[rank] -= 1
        if not left[rank]:
            on_filled(rank)

    async def end_own(ranks: Collection[int]) -> None:
        for rank in ranks:
            own_left[rank] -= 1
            if not own_left[rank]:
                for target, passes in work.passes.get(rank, {}).items():
                    await _all(*_copying(passes))
                    end(target)
                    end(rank)
            end(rank)

    async def read(holder: Holder) -> None:
        async with free:
            await state.reader.read(holder, work.reads[holder])
        await end_own(work.readers[holder])

    async def copy() -> None:
        for rank, copies in work.copies.items():
            await _all(*_copying(copies))
            await end_own([rank])

    for rank in needed.keys() - left.keys():
        on_filled(rank)
    await _all(*(read(holder) for holder in work.holders(node_number)), copy())
    return plan


class _Work:
    """Reads by holder, and copies within the node."""

    def __init__(self, plan: TransferPlan, state: SavedState, buffers: Mapping[int, memoryview]) -> None:
        self.copies: dict[int, list[Copy]] = {}
        """Rank → what it gets from holders on this node."""
        self.reads: dict[Holder, list[SliceRead]] = {}
        self.readers: dict[Holder, set[int]] = {}
        """Holder → ranks that get something from it."""
        self.passes: dict[int, dict[int, list[Copy]]] = {}
        """Rank → other rank → what that one gets of the parts that this one has read or copied itself."""
        for each in plan.copies():
            copy = (state.near[each.holder], each.source, buffers[each.rank], each.target)
            self.copies.setdefault(each.rank, []).append(copy)
        for each in plan.fetches():
            self.reads.setdefault(each.holder, []).append(SliceRead(each.source, buffers[each.rank], each.target))
            self.readers.setdefault(each.holder, set()).add(each.rank)
        for each in plan.passes():
            copy = (buffers[each.source_rank], each.source, buffers[each.rank], each.target)
            self.passes.setdefault(each.source_rank, {}).setdefault(each.rank, []).append(copy)

    def holders(self, node_number: int) -> list[Holder]:
        """Return the holders in the order in which a node begins to read from them.

        Holders of parts that several ranks need come first, because all of them wait for those. Apart from that, nodes
        begin with different holders, so that no holder serves all of them at once.
        """
        holders = list(self.reads)
        first = node_number % max(1, len(holders))
        return sorted([*holders[first:], *holders[:first]], key=lambda each: self.readers[each].isdisjoint(self.passes))

    def own_ranks(self) -> Iterator[int]:
        """Yield a rank for each part of the work that brings it something from a holder."""
        yield from self.copies
        for ranks in self.readers.values():
            yield from ranks

    def ranks(self) -> Iterator[int]:
        """Yield a rank for each part of the work that uses its buffer."""
        yield from self.own_ranks()
        for source, targets in self.passes.items():
            for target in targets:
                yield from (source, target)


def _copying(copies: Sequence[Copy]) -> list[Coroutine[Any, Any, None]]:
    threads = min(_MOST_COPIES, os.cpu_count() or 1)
    parts = [copies[first::threads] for first in range(threads)]
    return [asyncio.to_thread(copy_all, part) for part in parts if part]


async def _all(*work: Awaitable[None]) -> None:
    """Wait for all work, and raise the first error when no thread uses the memory any more."""
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
