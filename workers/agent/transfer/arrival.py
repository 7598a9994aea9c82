"""Whole shards that arrive: all chunks of a memory file, and the check of the shard in it."""

import contextlib
import mmap
import os
from collections import deque
from collections.abc import Generator

from regroup.workers.agent.transfer import chunk_format
from regroup.workers.agent.transfer.chunk_client import Pull, Read, chunks_of
from regroup.workers.agent.transfer.chunk_format import Kind
from regroup.workers.agent.transfer.connection import Connection
from regroup.workers.agent.transfer.priorities import Pace
from regroup.workers.agent.transfer.shard_store import ShardKey, TransferError
from regroup.workers.state.shard_buffer import Pin, ShardBuffer
from regroup.workers.state.slices.boxes import Region

MOST_TRIES = 3
"""Tries to get a chunk undamaged."""


def receive_shard(connection: Connection, fd: int, pace: Pace) -> None:
    """Fetch a whole memory file on one connection.

    Raises:
        TransferError: the same chunk arrived damaged three times, or the shard was overwritten.
        OSError: the connection ended.
    """
    with whole_file(fd) as read:
        pull = Pull(deque(chunks_of([read])))
        try:
            for _ in range(MOST_TRIES):
                pull.run(connection, pace)
                if not pull.failed:
                    break
                pull.waiting.extend(pull.failed)
                pull.failed.clear()
        finally:
            chunk_format.send_request_kind(connection, Kind.END)
    if pull.waiting:
        raise TransferError(f"a chunk arrived damaged {MOST_TRIES} times: checksum mismatch")


@contextlib.contextmanager
def whole_file(fd: int) -> Generator[Read]:
    """Map a memory file and return the read that fills it."""
    count = os.fstat(fd).st_size
    with mmap.mmap(fd, count) as memory, memoryview(memory) as view:
        yield Read(Region(0, count), view, Region(0, count))


def accept_shard(fd: int, key: ShardKey) -> None:
    """Check a received shard. Remove its pin for a checkpoint: the sender's saver reads the sender's buffer.

    Raises:
        TransferError: it is another shard, or its checksum is wrong.
    """
    with contextlib.closing(ShardBuffer(os.dup(fd))) as buffer:
        header = buffer.header()
        if (header.rank, header.generation, header.step) != (key.rank, key.generation, key.step):
            raise TransferError(
                f"received another shard: rank {header.rank}, generation {header.generation}, step {header.step}"
            )
        if not buffer.verify():
            raise TransferError("checksum mismatch: the shard changed during or after sending")
        buffer.release(Pin.CHECKPOINT)
