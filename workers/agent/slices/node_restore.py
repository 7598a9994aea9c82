"""The restore of one node: its ranks ask for their parts of a saved state, which are planned together."""

import asyncio
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from regroup.workers.agent.slices.restore_transfers import fill_buffers
from regroup.workers.agent.slices.saved_state import SavedState, StateLostError
from regroup.workers.state.slices.box_table import BoxTable, packed


@dataclass(frozen=True)
class RestoreTraffic:
    """Bytes that a restore brought to a node and copied within it."""

    fetched_bytes: int
    """Bytes from other nodes or from storage."""
    minimum_bytes: int
    """Bytes that the ranks of the node needed and that it did not hold."""
    copied_bytes: int
    """Bytes that were copied within the node."""
    received_bytes: int
    """Bytes that arrived from other nodes or from storage: more than `fetched_bytes` if parts were repeated, or if
    a chunk of a file has other parts too."""
    own_bytes: int
    """Memory of the old shards on the node, and of the buffers that got the new ones."""
    memory_bytes: int
    """Memory of all snapshots, mirrors and buffers on the node when the state was in place."""
    seconds: float
    """Time from the moment at which all ranks of the node had asked for their parts."""
    waited_s: float
    """Time from the first request of the last rank: its model existed then."""


class NodeRestore:
    """Plans when all ranks of the node have sent their requests, so shared bytes are fetched once."""

    def __init__(
        self,
        state: asyncio.Future[SavedState],
        ranks: Collection[int],
        node_number: int,
        on_restored: Callable[[RestoreTraffic], None],
        expect: Callable[[int], None],
        held_bytes: Callable[[], int],
    ) -> None:
        """Initialize the restore.

        Args:
            state: state to restore, once its holders are known.
            ranks: ranks of this node.
            node_number: number of this node among those of the job.
            on_restored: called when the parts are in place.
            expect: receives the number of bytes that will be read from other nodes or from storage.
            held_bytes: returns the memory of all snapshots, mirrors and buffers on this node.
        """
        self._state, self._ranks, self._node_number = state, frozenset(ranks), node_number
        self._on_restored, self._expect, self._held_bytes = on_restored, expect, held_bytes
        self._needed: dict[int, BoxTable] = {}
        self._buffers: dict[int, memoryview] = {}
        self._all_requested = asyncio.Event()
        self._filled: dict[int, asyncio.Event] = {}
        self._filling: asyncio.Future[None] | None = None
        self._last_request_s = 0.0
        self._is_closed = False

    async def catalog(self, rank: int, world_size: int) -> bytes:
        """Return what a rank learns of the state before it asks, as compressed JSON."""
        self._last_request_s = time.monotonic()
        state = await asyncio.shield(self._state)
        return await asyncio.to_thread(lambda: packed(state.catalog(rank, world_size)))

    async def fill(self, rank: int, needed: BoxTable, buffer: memoryview) -> None:
        """Fill a rank's buffer once all ranks of the node have asked, and return when its parts are in place.

        Args:
            rank: rank that asks.
            needed: boxes that it needs, with positions in its buffer.
            buffer: writable memory.

        Raises:
            ValueError: the rank does not run here, or its parts do not fit its buffer.
            StateError: the state does not have what a rank of this node needs.
            StateLostError: the state can no longer be read.
            StorageError: the checkpoint is damaged.
        """
        if self._is_closed:
            raise StateLostError(f"rank {rank} asked for its state after the end of its generation")
        if rank not in self._ranks or rank in self._needed:
            raise ValueError(f"rank {rank} asked for its state twice, or does not run on this node")
        for name, box, start in needed.rows():
            if start + box.size_bytes > len(buffer):
                raise ValueError(
                    f"{name!r} of {box.size_bytes} bytes at {start} exceeds a buffer of {len(buffer)} bytes"
                )
        self._needed[rank], self._buffers[rank] = needed, buffer
        filled = self._filled[rank] = asyncio.Event()
        if self._filling is None:
            self._filling = asyncio.ensure_future(self._fill())
            self._filling.add_done_callback(_note_error)
        if self._ranks == self._needed.keys():
            self._all_requested.set()
        own = asyncio.ensure_future(filled.wait())
        try:
            await asyncio.wait((own, self._filling), return_when=asyncio.FIRST_COMPLETED)
        finally:
            own.cancel()
        if not filled.is_set():
            self._filling.result()

    def close(self) -> None:
        """Stop a restore that is in progress: its ranks are dead."""
        self._is_closed = True
        if self._filling is not None:
            self._filling.cancel()
        self._state.add_done_callback(_close)

    async def _fill(self) -> None:
        await self._all_requested.wait()
        state, started_s = await asyncio.shield(self._state), time.monotonic()
        own_bytes = sum(len(view) for view in (*state.near.values(), *self._buffers.values()))
        try:
            plan = await fill_buffers(
                state, self._needed, self._buffers, self._node_number, self._expect, self._note_filled
            )
        finally:
            self._state.add_done_callback(_close)
        self._buffers.clear()
        memory = state.reader.received_bytes, own_bytes, self._held_bytes()
        planned = plan.fetched_bytes, plan.minimum_bytes, plan.copied_bytes
        now_s = time.monotonic()
        self._on_restored(RestoreTraffic(*planned, *memory, now_s - started_s, now_s - self._last_request_s))

    def _note_filled(self, rank: int) -> None:
        self._filled[rank].set()


def _close(found: asyncio.Future[SavedState]) -> None:
    """Close a state, in a thread: storage may be silent, and then a read lasts."""
    if not found.cancelled() and found.exception() is None:
        threading.Thread(target=found.result().close, name="close-state", daemon=True).start()


def _note_error(filling: asyncio.Future[None]) -> None:
    """Mark the error as seen: ranks that die while they wait leave no caller that reads it."""
    if not filling.cancelled():
        filling.exception()
