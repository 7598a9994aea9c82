"""Whole shards that arrive in chunks. Each part is summed as it arrives, so no second pass verifies the shard."""

import contextlib
import os
from collections import deque
from collections.abc import Callable, Sequence

from regroup.workers.agent.transfer.chunk_client import PartSum, Pull, Read, chunks_of
from regroup.workers.agent.transfer.connection import Connection
from regroup.workers.agent.transfer.priorities import Pace
from regroup.workers.agent.transfer.shard_store import ShardKey, TransferError
from regroup.workers.state.buffer_layout import HEADER_BYTES, data_start
from regroup.workers.state.shard_buffer import Pin, ShardBuffer
from regroup.workers.state.slices.boxes import Region

MOST_TRIES = 3
"""Tries to get a chunk undamaged."""
Fetch = Callable[[Sequence[Read]], None]
"""Fetches regions of a shard, or raises an error."""


class ArrivingShard:
    """A memory file that gets a shard. Call `receive_index`, then `receive_data`."""

    def __init__(self, fd: int, key: ShardKey) -> None:
        """Open the memory file. Its descriptor remains with the caller.

        Raises:
            TransferError: the file is too small for a shard.
        """
        if (file_bytes := os.fstat(fd).st_size) < HEADER_BYTES:
            raise TransferError(f"a memory file of {file_bytes} bytes has no shard")
        self._key = key
        self._buffer = ShardBuffer(os.dup(fd))
        self._memory = memoryview(self._buffer.memory.mapped())

    def close(self) -> None:
        """Unmap the memory."""
        self._memory.release()
        self._buffer.close()

    def receive_index(self, fetch: Fetch) -> None:
        """Fetch header and index. They have the sizes of all parts, and their checksums.

        Raises:
            TransferError: it is another shard, or a checksum is wrong.
        """
        fetch([self._read(0, HEADER_BYTES)])
        header = self._buffer.header()
        found = ShardKey(header.rank, header.generation, header.step)
        if found != self._key:
            raise TransferError(f"received another shard: {found}")
        start = data_start(header.index_bytes)
        if start + header.data_bytes > len(self._memory):
            sizes = f"a shard of {start + header.data_bytes} bytes exceeds its file of {len(self._memory)} bytes"
            raise TransferError(f"checksum mismatch: {sizes}")
        fetch([self._read(HEADER_BYTES, start)])
        if not self._buffer.has_intact_index():
            raise TransferError("checksum mismatch: the header or the index changed during or after sending")

    def receive_data(self, fetch: Fetch) -> None:
        """Fetch the data. The pin for a checkpoint is removed: the sender's saver reads the sender's buffer.

        Raises:
            TransferError: a checksum is wrong.
        """
        start = data_start(self._buffer.header().index_bytes)
        regions = self._buffer.regions()
        sums = [PartSum() for _ in regions]
        fetch([
            self._read(start + region.start, start + region.start + region.nbytes, part)
            for region, part in zip(regions, sums, strict=True)
        ])  # fmt: skip
        if any(part.checksum() != region.digest for region, part in zip(regions, sums, strict=True)):
            raise TransferError("checksum mismatch: the shard changed during or after sending")
        self._buffer.release(Pin.CHECKPOINT)

    def _read(self, first: int, last: int, part: PartSum | None = None) -> Read:
        region = Region(first, last - first)
        return Read(region, self._memory, region, part)


def fetch_on(
    connection: Connection, pace: Pace, reads: Sequence[Read], on_damage: Callable[[int], None] = lambda count: None
) -> None:
    """Fetch regions on one connection. `on_damage` is called with the number of chunks that arrived damaged.

    Raises:
        TransferError: a chunk arrived damaged three times, or the shard was overwritten.
        OSError: the connection ended.
    """
    pull = Pull(deque(chunks_of(reads)))
    for _ in range(MOST_TRIES):
        pull.run(connection, pace)
        if not pull.failed:
            return
        on_damage(len(pull.failed))
        pull.waiting.extend(pull.failed)
        pull.failed.clear()
    raise damage()


def damage() -> TransferError:
    """Return the error of a chunk that never arrives undamaged."""
    return TransferError(f"checksum mismatch: a chunk arrived damaged {MOST_TRIES} times")


def opened(fd: int, key: ShardKey) -> "contextlib.closing[ArrivingShard]":
    """Open a memory file that gets a shard, for a `with` statement."""
    return contextlib.closing(ArrivingShard(fd, key))
