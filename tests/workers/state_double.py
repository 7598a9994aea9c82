"""The part of an agent that gives ranks their parts of a saved state, for the double of an agent."""

import asyncio
import mmap
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from regroup.workers.agent.slices.restore_transfers import fill_buffers
from regroup.workers.agent.slices.saved_state import SavedState
from regroup.workers.agent.transfer.shard_index import ShardDescription, describe
from regroup.workers.agent.transfer.shard_store import ShardKey
from regroup.workers.contract.state_messages import StateRequest
from regroup.workers.state.shard_buffer import ShardBuffer
from regroup.workers.state.slices.box_table import BoxTable, packed, unpacked
from regroup.workers.state.slices.held_state import HeldState, Holder


class NothingElsewhere:
    """Reader of a state that is on this node as a whole."""

    def total_bytes(self, reads: object) -> int:
        return 0

    async def read(self, holder: Holder, reads: Sequence[object]) -> None:
        raise AssertionError(f"{holder} is on this node")

    def close(self) -> None:
        """Do nothing."""


def saved_state(shards: Mapping[int, int]) -> SavedState:
    """Return the state in the shards of one set: rank that wrote it → descriptor of its shard."""
    described = {rank: _described(fd) for rank, fd in shards.items()}
    facts = {rank: ShardBuffer(os.dup(fd)).index().extra for rank, fd in shards.items()}
    near = {rank: memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ)) for rank, fd in shards.items()}
    held = HeldState((rank, shard.table) for rank, shard in described.items())
    return SavedState(held, described[0].world_size, described[0].layout_hash, facts, NothingElsewhere(), {**near})


def fill(state: SavedState, needed: Mapping[int, BoxTable], buffers: Mapping[int, memoryview]) -> None:
    """Bring ranks what they need to their buffers. Tests may call it while a loop runs."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(fill_buffers(state, needed, buffers, 0))).result()


class StateDouble:
    """Parts of a saved state for the new ranks of a node."""

    def __init__(self, state: SavedState, world_size: int) -> None:
        """Args:
        state: set of snapshots, or a checkpoint.
        world_size: number of new ranks.
        """
        self._state, self._world_size = state, world_size
        self._needed: dict[int, BoxTable] = {}
        self._buffers: dict[int, memoryview] = {}

    def catalog(self, rank: int) -> int:
        """Return a file with the catalog for a rank."""
        fd = os.memfd_create("catalog")
        os.write(fd, packed(self._state.catalog(rank, self._world_size)))
        return fd

    def request(self, rank: int, request: StateRequest, table: int, buffer: int) -> bool:
        """Take the request of a rank. Return True once all have asked and have their parts."""
        os.posix_fallocate(buffer, 0, request.size_bytes)
        self._needed[rank] = BoxTable.from_json(unpacked(os.pread(table, os.fstat(table).st_size, 0)))
        self._buffers[rank] = memoryview(mmap.mmap(buffer, request.size_bytes))
        if len(self._needed) < self._world_size:
            return False
        fill(self._state, self._needed, self._buffers)
        self._state.reader.close()
        return True


def _described(fd: int) -> ShardDescription:
    header = ShardBuffer(os.dup(fd)).header()
    return describe(os.dup(fd), ShardKey(header.rank, header.generation, header.step))
