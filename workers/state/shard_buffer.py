"""Snapshot of one rank in memory that its agent owns: header, index, data. Imports neither torch nor ray.

    0      header, 4096 bytes; its state word is written last and on its own
    2048   in the header: the table of regions with their checksums
    4096   index, JSON: {"tensors": [...], "extra": {...}}
    ...    data, from the next multiple of 64; every tensor starts at a multiple of 64 from there

The memory is a memfd: it has no name that could leak, /dev/shm does not limit it, and it lives as long as a process
holds the descriptor. A rank may die at any instruction. Therefore a snapshot counts only if its state word says
complete, its header and index are sane, and its checksum is right. Any other content makes the buffer unusable; it is
not an error.
"""

import json
import mmap
import struct
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any

from regroup.workers.state.buffer_layout import (
    HEADER_BYTES,
    BufferLayout,
    Entry,
    ShardIndex,
    aligned,
    data_start,
    entry_of,
)
from regroup.workers.state.memory import checksum_regions
from regroup.workers.state.memory.buffer_memory import BufferMemory
from regroup.workers.state.memory.checksum import checksum
from regroup.workers.state.memory.checksum_regions import Region

_MAGIC = b"regroup\0"
_VERSION = 4
_FIELDS = struct.Struct("<8sIIQQII16sQQI")
"""Magic, version, checksum of index and data, generation, step, rank, world size, layout, index and data bytes,
checksum of the preceding fields."""
_INDEX_BYTES_AT = struct.calcsize("<8sIIQQII16s")
_STATE_AT = 1024
_PINNED_AT = 1032
_REGIONS_AT = 2048
_WORD = struct.Struct("<Q")


class ShardError(Exception):
    """A buffer lacks the requested content, or the host has no memory for it."""


class BufferState(IntEnum):
    """The state word of a buffer."""

    EMPTY = 0
    WRITING = 1
    """The buffer is being written, or its writer died."""
    COMPLETE = 2


class Pin(IntFlag):
    """Reasons that protect a buffer from being overwritten until the agent releases it."""

    NONE = 0
    CHECKPOINT = 1
    MIRROR = 2


@dataclass(frozen=True)
class ShardHeader:
    """Description of the content of a buffer, complete or not."""

    state: BufferState
    generation: int = 0
    step: int = 0
    """Number of committed steps in the state."""
    rank: int = -1
    world_size: int = 0
    layout_hash: str = ""
    index_bytes: int = 0
    data_bytes: int = 0
    crc32: int = 0
    pinned: Pin = Pin.NONE


class ShardBuffer:
    """Reader and writer of one snapshot buffer. It takes over the descriptor.

    To write, call `begin`, fill every `view(entry)`, and call `commit`. One process writes. Others read complete
    snapshots.
    """

    def __init__(self, fd: int, threads: int = 1) -> None:
        """Take over a descriptor.

        Args:
            fd: descriptor of the memory file.
            threads: most threads that read the buffer for its checksum.
        """
        self.memory = BufferMemory(fd)
        """The memory, for work that does not depend on its content."""
        self._threads = threads
        self._blank_between: BufferLayout | None = None
        """Layout whose padding between tensors is known to be zero."""

    def header(self) -> ShardHeader:
        """Return the header; its state is `EMPTY` if the buffer was never written or has no valid header."""
        if self.memory.file_bytes() < HEADER_BYTES:
            return ShardHeader(BufferState.EMPTY)
        memory = self._mapped()
        word: int = _WORD.unpack_from(memory, _STATE_AT)[0]
        pinned: int = _WORD.unpack_from(memory, _PINNED_AT)[0]
        packed = memory[: _FIELDS.size]
        magic, version, crc, generation, step, rank, world_size, layout, index_bytes, data_bytes, own_crc = (
            _FIELDS.unpack(packed)
        )
        if magic != _MAGIC or version != _VERSION or word not in tuple(BufferState):
            return ShardHeader(BufferState.EMPTY)
        state = BufferState(word)
        if state is BufferState.COMPLETE and own_crc != zlib.crc32(packed[:-4]):
            state = BufferState.WRITING
        return ShardHeader(
            state,
            generation,
            step,
            rank,
            world_size,
            layout.rstrip(b"\0").decode("ascii", "replace"),
            index_bytes,
            data_bytes,
            crc,
            Pin(pinned),
        )

    def verify(self) -> bool:
        """Return True if the buffer holds a complete snapshot with the right checksum. Reads the whole buffer."""
        if not self.has_intact_index():
            return False
        found, _ = self._summed(self.header())
        return checksum_regions.packed(found) == self._table()

    def has_intact_index(self) -> bool:
        """Return True if the buffer holds a complete snapshot whose header, index and table of checksums are right.

        Does not read the data.
        """
        header = self.header()
        if (
            header.state is not BufferState.COMPLETE
            or data_start(header.index_bytes) + header.data_bytes > self.memory.file_bytes()
            or any(region.start + region.nbytes > header.data_bytes for region in self._regions())
        ):
            return False
        found, crc = self._summed(header, self._regions())
        return crc == header.crc32 and checksum_regions.packed(found) == self._table()

    def digests(self) -> dict[str, int]:
        """Return group → checksum of this rank's copy, of a complete snapshot, for copies that must be equal."""
        return checksum_regions.digests(self._regions())

    def free_digests(self) -> dict[str, int]:
        """Return group → checksum of this rank's copy, of a complete snapshot, for copies that may differ."""
        return checksum_regions.free_digests(self._regions())

    def regions(self) -> list[checksum_regions.Region]:
        """Return the regions of a snapshot that is complete."""
        return self._regions()

    def skew(self, without: Collection[str] = ()) -> float:
        """Return the skew of a complete snapshot; its sum over all ranks is 0 if replicas agree."""
        return checksum_regions.skew(self._regions(), without)

    def index(self) -> ShardIndex:
        """Return the index of a snapshot that is being written or complete.

        Raises:
            ShardError: The buffer holds no index.
        """
        header = self.header()
        end = data_start(header.index_bytes) + header.data_bytes
        if header.state is BufferState.EMPTY or end > self.memory.file_bytes():
            raise ShardError(f"snapshot buffer is {header.state.name.lower()}: it has no index; verify() it first")
        data = json.loads(self._mapped()[HEADER_BYTES : HEADER_BYTES + header.index_bytes])
        return ShardIndex(tuple(entry_of(item) for item in data["tensors"]), data["extra"])

    def view(self, entry: Entry) -> memoryview:
        """Return the writable bytes of one shard. The view stays valid after `close`."""
        return self.views([entry])[0]

    def data_place(self) -> tuple[int, int]:
        """Return a value that changes when the data moves in memory."""
        return id(self._mapped()), data_start(self.header().index_bytes)

    def memory_place(self) -> tuple[int, int]:
        """Return address and size in bytes of the mapped memory."""
        return self.memory.place()

    def data(self) -> tuple[memoryview, int]:
        """Return the writable data of a snapshot, and the address of its first byte."""
        header = self.header()
        start = data_start(header.index_bytes)
        return memoryview(self._mapped())[start : start + header.data_bytes], self.memory.place()[0] + start

    def views(self, entries: Sequence[Entry]) -> list[memoryview]:
        """Return the `view` of each entry. Reads the header only once, which saves time at every step."""
        start = data_start(self.header().index_bytes)
        memory = memoryview(self._mapped())
        return [memory[start + entry.start : start + entry.start + entry.nbytes] for entry in entries]

    def begin(
        self,
        plan: BufferLayout,
        extra: Mapping[str, Any],
        *,
        generation: int,
        step: int,
        rank: int,
        world_size: int,
        layout_hash: str,
    ) -> None:
        """Start writing a snapshot over the present one. Then fill `view(entry)` for each entry of `plan.entries`.

        The first call allocates the memory (posix_fallocate), because a write to memory that the host lacks would raise
        a signal instead of an error.

        Raises:
            ShardError: The buffer is pinned, or the host has no memory.
        """
        if self.header().pinned:
            raise ShardError(f"snapshot buffer is pinned for {self.header().pinned!r}; choose another one")
        index = plan.index(extra)
        memory = self._allocated(data_start(len(index)) + plan.data_bytes)
        # Invalidate the old snapshot before the first byte of the new one is written.
        _WORD.pack_into(memory, _STATE_AT, BufferState.WRITING)
        self._put_fields(generation, step, rank, world_size, layout_hash, len(index), plan.data_bytes, 0)
        self._put_regions(plan.regions)
        memory[HEADER_BYTES : HEADER_BYTES + len(index)] = index
        if self._blank_between is not plan:
            self._blank(plan, data_start(len(index)))

    def commit(self, pin: Pin = Pin.NONE, regions: Sequence[Region] | None = None) -> ShardHeader:
        """Finish the snapshot: write checksum and header, and the state word last.

        Args:
            pin: Reasons to protect the snapshot until `release`.
            regions: Regions of the data with their checksums, if the copy computed them. Otherwise they are computed
                here, and all data is read.

        Raises:
            ShardError: `begin` was not called.
        """
        header = self.header()
        if header.state is not BufferState.WRITING:
            raise ShardError(f"snapshot buffer is {header.state.name.lower()}: call begin() before commit()")
        memory = self._mapped()
        found, crc = self._summed(header, regions)
        self._put_regions(found)
        self._put_fields(
            header.generation,
            header.step,
            header.rank,
            header.world_size,
            header.layout_hash,
            header.index_bytes,
            header.data_bytes,
            crc,
        )
        _WORD.pack_into(memory, _PINNED_AT, int(pin))
        _WORD.pack_into(memory, _STATE_AT, BufferState.COMPLETE)
        return self.header()

    def release(self, pin: Pin) -> None:
        """Remove pins. The rank may overwrite the buffer once no pin is left."""
        if self.memory.file_bytes() >= HEADER_BYTES:
            memory = self._mapped()
            held: int = _WORD.unpack_from(memory, _PINNED_AT)[0]
            _WORD.pack_into(memory, _PINNED_AT, held & ~int(pin))

    def close(self) -> None:
        """Close the descriptor. Existing views keep the memory."""
        self.memory.close()

    def _put_fields(
        self,
        generation: int,
        step: int,
        rank: int,
        world_size: int,
        layout_hash: str,
        index_bytes: int,
        data_bytes: int,
        crc: int,
    ) -> None:
        packed = _FIELDS.pack(
            _MAGIC,
            _VERSION,
            crc,
            generation,
            step,
            rank,
            world_size,
            layout_hash.encode("ascii"),
            index_bytes,
            data_bytes,
            0,
        )
        self._mapped()[: _FIELDS.size] = packed[:-4] + zlib.crc32(packed[:-4]).to_bytes(4, "little")

    def _put_regions(self, found: Sequence[Region]) -> None:
        self._mapped()[_REGIONS_AT : _REGIONS_AT + checksum_regions.TABLE_BYTES] = checksum_regions.packed(found)

    def _regions(self) -> list[Region]:
        """Return the regions. For an invalid table the list is empty, and `verify` fails on the table itself."""
        return checksum_regions.unpacked(self._table()) or []

    def _table(self) -> bytes:
        return self._mapped()[_REGIONS_AT : _REGIONS_AT + checksum_regions.TABLE_BYTES]

    def _summed(self, header: ShardHeader, regions: Sequence[Region] | None = None) -> tuple[list[Region], int]:
        """Return the regions with their present checksums, and the checksum of the whole.

        Args:
            header: Header of the buffer.
            regions: Regions with their checksums, if they are known.
        """
        start = data_start(header.index_bytes)
        with memoryview(self._mapped()) as memory:

            def of(first: int, last: int) -> int:
                with memory[first:last] as covered:
                    return checksum(covered, self._threads)

            found = (
                list(regions)
                if regions is not None
                else [
                    checksum_regions.summed(region, of(start + region.start, start + region.start + region.nbytes))
                    for region in self._regions()
                ]
            )
            return found, checksum_regions.whole(of(HEADER_BYTES, start), found)

    def _blank(self, plan: BufferLayout, data_start: int) -> None:
        """Zero the padding between tensors: ranks compare checksums, and bytes of an older layout must not count."""
        memory = self._mapped()
        for entry in plan.entries:
            end = entry.start + entry.nbytes
            memory[data_start + end : data_start + aligned(end)] = bytes(aligned(end) - end)
        self._blank_between = plan

    def _allocated(self, size_bytes: int) -> mmap.mmap:
        try:
            return self.memory.allocate(size_bytes)
        except OSError as error:
            raise ShardError(
                f"no host memory for a snapshot buffer of {size_bytes} bytes ({error.strerror}); "
                "use more ranks, a smaller model, or nodes with more memory"
            ) from error

    def _mapped(self) -> mmap.mmap:
        return self.memory.mapped()
