"""A shard that arrives in chunks: complete and undamaged, or an error."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pytest

from regroup.workers.agent.transfer import arrival
from regroup.workers.agent.transfer.arrival import ArrivingShard, Fetch, fetch_on
from regroup.workers.agent.transfer.chunk_client import Read, chunks_of
from regroup.workers.agent.transfer.chunk_server import ServedShard, serve_chunks
from regroup.workers.agent.transfer.connection import Connection
from regroup.workers.agent.transfer.priorities import Pace
from regroup.workers.agent.transfer.shard_store import TransferError
from regroup.workers.agent.transfer.transfer_faults import TransferFaults
from regroup.workers.state.buffer_layout import HEADER_BYTES, data_start
from regroup.workers.state.memory.checksum import Fold
from regroup.workers.state.shard_buffer import Pin, ShardBuffer
from tests.workers.agent.open_descriptors import descriptors
from tests.workers.agent.transfer.held_shards import KEY, content, new_shard


@pytest.fixture
def shard() -> Iterator[int]:
    fd = new_shard()
    yield fd
    os.close(fd)


@pytest.fixture
def place(shard: int) -> Iterator[int]:
    """A memory file of the size of the shard."""
    fd = os.memfd_create("place")
    os.posix_fallocate(fd, 0, os.fstat(shard).st_size)
    yield fd
    os.close(fd)


def from_file(source: int) -> Fetch:
    """Return a fetch that copies from a memory file, chunk by chunk, as a connection does."""

    def fetch(reads: Sequence[Read]) -> None:
        for chunk in chunks_of(reads):
            for read in chunk.reads:
                data = os.pread(source, read.source.run_bytes, read.source.offset)
                read.memory[read.target.offset : read.target.end] = data
                if read.part is not None:
                    fold = Fold()
                    fold.add(memoryview(data))
                    read.part.add(fold)

    return fetch


def receive(place: int, fetch: Fetch) -> None:
    with arrival.opened(place, KEY) as arriving:
        arriving.receive_index(fetch)
        arriving.receive_data(fetch)


def test_a_shard_arrives_and_is_pinned_for_no_checkpoint(shard: int, place: int) -> None:
    """Check this because the saver of a checkpoint reads the buffer of the sender."""
    before = descriptors()
    os.pwrite(shard, int(Pin.CHECKPOINT | Pin.MIRROR).to_bytes(8, "little"), 1032)
    with contextlib.closing(ShardBuffer(os.dup(shard))) as buffer:
        header = buffer.header()
    assert header.pinned == Pin.CHECKPOINT | Pin.MIRROR
    receive(place, from_file(shard))
    assert descriptors() <= before
    with contextlib.closing(ShardBuffer(os.dup(place))) as buffer:
        assert buffer.verify() and buffer.header() == replace(header, pinned=Pin.MIRROR)
    assert content(place)[HEADER_BYTES:] == content(shard)[HEADER_BYTES:]


def test_a_file_without_space_for_a_header_is_refused() -> None:
    fd = os.memfd_create("small")
    os.ftruncate(fd, HEADER_BYTES - 1)
    with pytest.raises(TransferError, match=f"a memory file of {HEADER_BYTES - 1} bytes has no shard"):
        ArrivingShard(fd, KEY)
    os.close(fd)


def test_a_shard_that_exceeds_its_file_is_refused(shard: int) -> None:
    fd = os.memfd_create("short")
    os.posix_fallocate(fd, 0, 3 * HEADER_BYTES)
    with pytest.raises(TransferError, match="exceeds its file of 12288 bytes"):
        receive(fd, from_file(shard))
    assert os.fstat(fd).st_size == 3 * HEADER_BYTES
    os.close(fd)


def test_another_shard_is_refused(place: int) -> None:
    other = new_shard(replace(KEY, step=6))
    with pytest.raises(TransferError, match="received another shard: rank 1, generation 3, step 6"):
        receive(place, from_file(other))
    os.close(other)


@pytest.mark.parametrize("part", ["index", "data", "last byte"])
def test_a_changed_byte_is_seen(shard: int, place: int, part: str) -> None:
    with contextlib.closing(ShardBuffer(os.dup(shard))) as buffer:
        header = buffer.header()
    start = data_start(header.index_bytes)
    at = {"index": HEADER_BYTES + 20, "data": start + 5, "last byte": start + header.data_bytes - 1}[part]
    byte = os.pread(shard, 1, at)
    os.pwrite(shard, bytes([byte[0] ^ 1]), at)
    with pytest.raises(TransferError, match="checksum mismatch"):
        receive(place, from_file(shard))


@pytest.mark.parametrize("damaged", [0, 1, 2, 3])
def test_a_damaged_chunk_is_requested_again_at_most_twice(shard: int, place: int, damaged: int) -> None:
    faults, counts = TransferFaults(), list[int]()
    for _ in range(damaged):
        faults.plan("corrupt_transfer")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = Connection(socket.create_connection(listener.getsockname()))
        receiver = Connection(listener.accept()[0])
    for end in (sender, receiver):
        end.start(10)
    source = ServedShard(os.dup(shard), KEY)
    serving = threading.Thread(target=_serve, args=(sender, source, faults))
    serving.start()
    fetch = partial(fetch_on, receiver, Pace(), on_damage=counts.append)
    try:
        if damaged < arrival.MOST_TRIES:
            receive(place, fetch)
            assert content(place)[HEADER_BYTES:] == content(shard)[HEADER_BYTES:]
        else:
            with pytest.raises(TransferError, match="a chunk arrived damaged 3 times"):
                receive(place, fetch)
    finally:
        receiver.abort()
        serving.join(10)
        for each in (sender, receiver, source):
            each.close()
    assert counts == [1] * damaged


def _serve(connection: Connection, source: ServedShard, faults: TransferFaults) -> None:
    with contextlib.suppress(OSError):
        serve_chunks(connection, source, Pace(), faults)
