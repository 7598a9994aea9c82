"""A saved state whose files are in this process, and a reader of them that a test can observe and stop."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from regroup.workers.agent.slices.saved_state import SavedState, SliceRead
from regroup.workers.agent.transfer.region_copy import copy
from regroup.workers.state.slices.box_table import BoxTable
from regroup.workers.state.slices.held_state import Holder as AnyHolder
from tests.workers.state.slices.saved_meshes import Holder, Mesh, SavedMesh, part_of, table_of

GAP = 8
"""Bytes between the tensors in a buffer."""


class MeshReader:
    """Reads the files of other nodes."""

    def __init__(self, saved: SavedMesh, before: Callable[[Holder], None] = lambda holder: None) -> None:
        """Initialize the reader. `before` is called in the event loop when a read begins; it may raise."""
        self.received_bytes = 0
        self.begun: list[Holder] = []
        """Holders in the order of the reads."""
        self.most = 0
        """Largest number of reads at the same time."""
        self.may_end = asyncio.Event()
        """Reads end once it is set."""
        self.may_end.set()
        self.is_closed = threading.Event()
        self._saved, self._before, self._running = saved, before, 0

    async def read(self, holder: AnyHolder, reads: Sequence[SliceRead]) -> None:
        place = cast(Holder, holder)
        self.begun.append(place)
        self._running += 1
        self.most = max(self.most, self._running)
        try:
            self._before(place)
            await asyncio.sleep(0)  # other reads begin now
            await self.may_end.wait()
            file = memoryview(bytearray(self._saved.files[place]))
            for each in reads:
                copy(file, each.source, each.memory, each.target)
                self.received_bytes += each.source.size_bytes
        finally:
            self._running -= 1

    def total_bytes(self, reads: Mapping[AnyHolder, Sequence[SliceRead]]) -> int:
        return sum(each.source.size_bytes for parts in reads.values() for each in parts)

    def close(self) -> None:
        self.is_closed.set()


def state_of(saved: SavedMesh, node: int, reader: MeshReader) -> SavedState:
    """Return the state as a node has it: the files of its own ranks are near."""
    near: dict[AnyHolder, memoryview] = {
        holder: memoryview(bytearray(saved.files[holder])) for holder in saved.near(node)
    }
    facts = {rank: {"rank": rank, "random": rank} for rank in range(saved.mesh.world_size)}
    return SavedState(saved.held, saved.mesh.world_size, "h", facts, reader, near)


class Buffers:
    """Parts that the ranks of a node need, and the memory that receives them."""

    def __init__(self, saved: SavedMesh, mesh: Mesh, node: int) -> None:
        self.needed: dict[int, BoxTable] = {}
        self.memory: dict[int, memoryview] = {}
        self._saved, self._mesh = saved, mesh
        for rank in mesh.ranks_on(node):
            self.needed[rank], size_bytes = table_of(saved.tensors, mesh, rank, GAP)
            self.memory[rank] = memoryview(bytearray(size_bytes))

    def wrong(self) -> list[tuple[int, str]]:
        """Return ranks and tensors whose values are not those of the saved state."""
        found: list[tuple[int, str]] = []
        for rank, table in self.needed.items():
            for name, box, start in table.rows():
                expected = part_of(self._saved.tensors[name], box.box).tobytes()
                if self.memory[rank][start : start + box.size_bytes] != expected:
                    found.append((rank, name))
        return found
