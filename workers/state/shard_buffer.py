"""One rank's snapshot in memory that its agent owns: header, index, data. No torch, no ray.

    0      header, 4096 bytes; its state word is stored last, alone
    2048   in it: the table of regions that the data is summed by
    4096   index, JSON: {"tensors": [...], "extra": {...}}
    ...    data, from the next multiple of 64; every tensor starts at a multiple of 64 from there

The memory is a memfd: it has no name to leak, is not bounded by /dev/shm, and lives as long as anybody holds the
descriptor. A rank may die at any instruction, so a set counts only if its state word says complete, its header and
index are sane and its checksum verifies; whatever else is found there is no error but an unusable buffer.
"""

import json
import mmap
import os
import struct
import zlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any

from regroup.workers.state import checksum_regions
from regroup.workers.state.buffer_layout import (
    HEADER_BYTES,
    BufferLayout,
    Entry,
    ShardIndex,
    aligned,
    data_start,
    entry_of,
)
from regroup.workers.state.checksum import checksum
from regroup.workers.state.checksum_regions import Region

_MAGIC = b"regroup\0"
_VERSION = 3
_FIELDS = struct.Struct("<8sIIQQII16sQQI")
"""magic, version, checksum of index and data, generation, step, rank, world size, layout, index and data bytes,
checksum of the fields before."""
_INDEX_BYTES_AT = struct.calcsize("<8sIIQQII16s")
_STATE_AT = 1024
_PINNED_AT = 1032
_REGIONS_AT = 2048
_WORD = struct.Struct("<Q")


class ShardError(Exception):
    """A buffer does not hold what was asked of it, or the host has no room for it."""


class BufferState(IntEnum):
    """The state word of a buffer."""

    EMPTY = 0
    WRITING = 1
    """Being written, or its writer died."""
    COMPLETE = 2


class Pin(IntFlag):
    """What keeps a buffer from being written again, until the agent releases it."""

    NONE = 0
    CHECKPOINT = 1
    MIRROR = 2


@dataclass(frozen=True)
class ShardHeader:
    """What a buffer holds, whether or not it is complete."""

    state: BufferState
    generation: int = 0
    step: int = 0
    """Committed steps in the state."""
    rank: int = -1
    world_size: int = 0
    layout_hash: str = ""
    index_bytes: int = 0
    data_bytes: int = 0
    crc32: int = 0
    pinned: Pin = Pin.NONE


class ShardBuffer:
    """Reads and writes one snapshot buffer; takes over the descriptor.

    Writing is `begin`, fill every `view(entry)`, `commit`. One process writes; others read what is complete.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._memory: mmap.mmap | None = None
        self._blank_between: BufferLayout | None = None
        """Of this plan's data, what lies between tensors is zeros."""

    def header(self) -> ShardHeader:
        """The header; `EMPTY` if nothing was ever written, or if what is there is not a header."""
        memory = self._mapped()
        if len(memory) < HEADER_BYTES:
            return ShardHeader(BufferState.EMPTY)
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
        """Whether the buffer holds a complete set whose checksum is right. Reads all of it."""
        header = self.header()
        if (
            header.state is not BufferState.COMPLETE
            or data_start(header.index_bytes) + header.data_bytes > len(self._mapped())
            or any(region.start + region.nbytes > header.data_bytes for region in self._regions())
        ):
            return False
        found, crc = self._summed(header)
        return crc == header.crc32 and checksum_regions.packed(found) == self._table()

    def digests(self) -> dict[str, int]:
        """Of a complete set: group → checksum of what this rank holds like others."""
        return checksum_regions.digests(self._regions())

    def skew(self, without: Collection[str] = ()) -> float:
        """Of a complete set: 0 in sum over all ranks if they hold alike what they should (`regions.skew`)."""
        return checksum_regions.skew(self._regions(), without)

    def index(self) -> ShardIndex:
        """The index of a set being written or complete.

        Raises:
            ShardError: the buffer holds no index.
        """
        header = self.header()
        memory = self._mapped()
        if header.state is BufferState.EMPTY or data_start(header.index_bytes) + header.data_bytes > len(memory):
            raise ShardError(f"snapshot buffer is {header.state.name.lower()}: it has no index; verify() it first")
        data = json.loads(memory[HEADER_BYTES : HEADER_BYTES + header.index_bytes])
        return ShardIndex(tuple(entry_of(item) for item in data["tensors"]), data["extra"])

    def view(self, entry: Entry) -> memoryview:
        """The bytes of one shard, writable; valid as long as it is held, also after `close`."""
        return self.views([entry])[0]

    def data_place(self) -> tuple[int, int]:
        """Changes whenever the data of a set lies elsewhere in memory than that of the set before."""
        return id(self._mapped()), data_start(self.header().index_bytes)

    def views(self, entries: Sequence[Entry]) -> list[memoryview]:
        """`view` of each entry; the header is read once, which at every step of a job is worth it."""
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
        """Start writing a set, giving up the one that is here. Then fill `view(entry)` for every `plan.entries`.

        Memory is taken at the first use (posix_fallocate), because a write to memory the host does not have would be
        a signal and not an error.

        Raises:
            ShardError: the buffer is pinned, or the host has no room.
        """
        if self.header().pinned:
            raise ShardError(f"snapshot buffer is pinned for {self.header().pinned!r}; choose another one")
        index = plan.index(extra)
        memory = self._allocated(data_start(len(index)) + plan.data_bytes)
        # The old set ends before the first byte of the new one is written.
        _WORD.pack_into(memory, _STATE_AT, BufferState.WRITING)
        self._put_fields(generation, step, rank, world_size, layout_hash, len(index), plan.data_bytes, 0)
        self._put_regions(plan.regions)
        memory[HEADER_BYTES : HEADER_BYTES + len(index)] = index
        if self._blank_between is not plan:
            self._blank(plan, data_start(len(index)))

    def commit(self, pin: Pin = Pin.NONE) -> ShardHeader:
        """Finish the set begun: checksum, header, and last of all the state word. `pin` holds it for what is named.

        Raises:
            ShardError: no set was begun.
        """
        header = self.header()
        if header.state is not BufferState.WRITING:
            raise ShardError(f"snapshot buffer is {header.state.name.lower()}: begin() a set before commit()")
        memory = self._mapped()
        found, crc = self._summed(header)
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
        """Hold the buffer no longer for `pin`; its rank may write it again once nothing else holds it."""
        memory = self._mapped()
        if len(memory) >= HEADER_BYTES:
            held: int = _WORD.unpack_from(memory, _PINNED_AT)[0]
            _WORD.pack_into(memory, _PINNED_AT, held & ~int(pin))

    def close(self) -> None:
        """Give up the descriptor. Views that are still held keep the memory."""
        os.close(self._fd)
        if self._memory is not None:
            with suppress(BufferError):  # a view is still held; the mapping ends with it
                self._memory.close()
            self._memory = None

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
        """Without any, nothing of the data is summed: then `verify` fails, because the table is."""
        return checksum_regions.unpacked(self._table()) or []

    def _table(self) -> bytes:
        return self._mapped()[_REGIONS_AT : _REGIONS_AT + checksum_regions.TABLE_BYTES]

    def _summed(self, header: ShardHeader) -> tuple[list[Region], int]:
        """Regions with the checksums of what is there now, and that of all of it."""
        start = data_start(header.index_bytes)
        with memoryview(self._mapped()) as memory:

            def of(first: int, last: int) -> int:
                with memory[first:last] as covered:
                    return checksum(covered)

            found = [
                checksum_regions.summed(region, of(start + region.start, start + region.start + region.nbytes))
                for region in self._regions()
            ]
            return found, checksum_regions.whole(of(HEADER_BYTES, start), found)

    def _blank(self, plan: BufferLayout, data_start: int) -> None:
        """Ranks compare their checksums: what an older plan left between the tensors of this one must not count."""
        memory = self._mapped()
        for entry in plan.entries:
            end = entry.start + entry.nbytes
            memory[data_start + end : data_start + aligned(end)] = bytes(aligned(end) - end)
        self._blank_between = plan

    def _allocated(self, size_bytes: int) -> mmap.mmap:
        status = os.fstat(self._fd)
        if status.st_size < size_bytes or status.st_blocks * 512 < size_bytes:
            try:
                os.posix_fallocate(self._fd, 0, size_bytes)
            except OSError as error:
                raise ShardError(
                    f"no host memory for a snapshot buffer of {size_bytes} bytes ({error.strerror}); "
                    "use more ranks, a smaller model, or nodes with more memory"
                ) from error
        return self._mapped()

    def _mapped(self) -> mmap.mmap:
        size = os.fstat(self._fd).st_size
        if self._memory is None or len(self._memory) != size:
            # An empty file cannot be mapped; one page of nothing reads as an empty buffer.
            self._memory = mmap.mmap(self._fd, size) if size else mmap.mmap(-1, 1)
        return self._memory
