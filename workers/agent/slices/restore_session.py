"""The restore of a generation on one node: where its ranks get their buffers and their state from."""

import asyncio
import mmap
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from regroup.workers.agent.slices.memory_state import LocalShards, memory_state
from regroup.workers.agent.slices.node_restore import NodeRestore, RestoreTraffic
from regroup.workers.agent.slices.saved_state import SavedState
from regroup.workers.agent.snapshots.buffer_pool import BufferPool, LentBuffers
from regroup.workers.agent.snapshots.mirroring import Mirroring
from regroup.workers.contract.agent_records import ShardHolder
from regroup.workers.contract.messages import Join
from regroup.workers.contract.state_messages import BuffersRequest, StateCatalogRequest, StateRequest
from regroup.workers.contract.storage_progress import StorageProgress
from regroup.workers.os.descriptors import OwnDescriptors
from regroup.workers.os.memory_files import allocate_memory
from regroup.workers.state.slices.box_table import BoxTable, unpacked
from regroup.workers.storage.byte_meter import ByteMeter

OpenCheckpoint = Callable[[str, Sequence[int], int, Callable[[int], None]], SavedState]
"""Returns the state of a checkpoint: its URI, the ranks of this node, the number of all ranks, a counter of the bytes
that are read. Blocking."""
_MOST_TABLE_BYTES = 1 << 28
"""Largest request of a rank, as text. A model of 2,000 tensors needs 0.2 MB."""


class RestoreSession:
    """Serves the ranks of one generation on one node."""

    def __init__(
        self,
        joins: Sequence[Join],
        holders: Sequence[ShardHolder],
        buffers: BufferPool,
        mirroring: Mirroring,
        on_restored: Callable[[RestoreTraffic], None],
        open_checkpoint: OpenCheckpoint,
    ) -> None:
        """Start to find, open or fetch the state while the ranks boot.

        Args:
            joins: one for each rank of this node.
            holders: agents that have shards of the set in memory.
            buffers: snapshot buffers of this node.
            mirroring: shards of other nodes here, and transfers.
            on_restored: called when the parts that the ranks asked for are in place.
            open_checkpoint: opens the checkpoint to restore.
        """
        self._restore, self._buffers, self._mirroring = joins[0].restore, buffers, mirroring
        self._on_restored, self._meter = on_restored, ByteMeter()
        self._ranks, self._world_size = [join.rank for join in joins], joins[0].world_size
        self._node: NodeRestore | None = None
        self._ready: asyncio.Future[Any]
        if self._restore.source == "memory" and self._restore.world_size:
            self._serve(self._memory_state(holders), joins[0].node_rank)
        elif self._restore.source == "checkpoint":
            place = self._restore.uri, self._ranks, self._world_size
            self._serve(asyncio.to_thread(open_checkpoint, *place, self._meter.count), joins[0].node_rank)
        else:
            self._ready = asyncio.ensure_future(mirroring.fetch(self._restore, holders, self._ranks))

    async def wait(self) -> None:
        """Wait until the state is known and shards of this node's own ranks are here.

        Raises:
            TransferError: a shard could not be fetched.
            StateLostError: a shard is nowhere any more.
            StorageError: the checkpoint is not complete, or damaged.
            StorageUnavailable: storage did not answer. The checkpoint may be intact.
        """
        await asyncio.shield(self._ready)

    async def lend(self, request: BuffersRequest) -> LentBuffers:
        """Return the buffers of a rank.

        Raises:
            TransferError: its shard could not be fetched.
        """
        if self._node is None:
            await self.wait()
        return self._buffers.lend(request, self._restore)

    async def catalog(self, request: StateCatalogRequest) -> bytes:
        """Return what the saved state contains, as compressed JSON.

        Raises:
            ValueError: no part of the state is requested in this restore.
            StateLostError: a shard is nowhere any more.
            StorageError, StorageUnavailable: as from `wait`.
        """
        return await self._node_restore().catalog(request.rank, self._world_size)

    async def fill(self, request: StateRequest, table: bytes) -> None:
        """Fill a buffer of a rank with the parts of the state in `table`, once all ranks of this node have asked.

        Raises:
            ValueError: the request is invalid.
            OSError: this node has no memory for the parts.
            StateError: the state does not have what a rank of this node needs.
            StateLostError: the state can no longer be read.
            StorageError, StorageUnavailable: as from `wait`; damage of a file may be found only now.
        """
        needed = BoxTable.from_json(unpacked(table, _MOST_TABLE_BYTES))
        buffer = OwnDescriptors([self._buffers.buffer_of(request.rank, request.buffer)])
        memory = await asyncio.to_thread(_allocated, buffer, request.size_bytes)
        await self._node_restore().fill(request.rank, needed, memory)

    def progress(self) -> StorageProgress | None:
        """Return the progress of reading a checkpoint; None for another source, and before it is known what is read."""
        return self._meter.progress() if self._restore.source == "checkpoint" else None

    def release_source(self) -> None:
        """Release the shards that the ranks were restored from: all ranks have a complete set of their own.

        The supervisor lets nodes without ranks do the same. Mirrors of other nodes stay until it asks.
        """
        self._buffers.release_source()

    def close(self) -> None:
        """Stop the restore: its ranks are dead."""
        if self._node is not None:
            self._node.close()

    def _serve(self, state: Awaitable[SavedState], node_number: int) -> None:
        """Let the ranks ask for parts of a state."""
        found = asyncio.ensure_future(state)
        self._ready = found
        self._node = NodeRestore(
            found, self._ranks, node_number, self._on_restored, self._meter.expect, self._mirroring.held_bytes
        )

    def _node_restore(self) -> NodeRestore:
        if self._node is None:
            raise ValueError(f"a restore from {self._restore.source!r} in the same layout has no parts to ask for")
        return self._node

    def _memory_state(self, holders: Sequence[ShardHolder]) -> Awaitable[SavedState]:
        retained = self._mirroring.retain_source(self._restore.generation, self._restore.step)
        local = LocalShards(tuple(retained), OwnDescriptors(retained.values()))
        is_same_size = self._restore.world_size == self._world_size
        facts_of = self._ranks if is_same_size else ()
        return memory_state(self._restore, local, holders, self._mirroring.transfers, facts_of)


def _allocated(buffer: OwnDescriptors, size_bytes: int) -> memoryview:
    """Allocate the memory of a buffer and return it. A write to memory that the host lacks would raise a signal."""
    if size_bytes < 1:
        raise ValueError(f"a buffer of {size_bytes} bytes cannot receive a state")
    with buffer as (fd,):
        allocate_memory(fd, size_bytes)
        return memoryview(mmap.mmap(fd, size_bytes))
