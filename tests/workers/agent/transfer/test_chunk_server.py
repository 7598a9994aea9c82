"""The sending side: whose bytes it sends, and when it refuses."""

import os
import socket
from collections.abc import Iterator

import pytest

from regroup.workers.agent.transfer import chunk_format
from regroup.workers.agent.transfer.chunk_format import MOST_CHUNK_BYTES, Kind
from regroup.workers.agent.transfer.chunk_server import ServedShard
from regroup.workers.agent.transfer.connection import Connection
from regroup.workers.agent.transfer.shard_store import ShardKey, TransferError
from regroup.workers.agent.transfer.transfer_faults import TransferFaults
from regroup.workers.state.memory.checksum import checksum
from regroup.workers.state.shard_buffer import BufferState
from regroup.workers.state.slices.boxes import Region
from tests.workers.agent.open_descriptors import descriptors
from tests.workers.agent.transfer.held_shards import KEY, content, new_shard


@pytest.fixture
def source() -> Iterator[ServedShard]:
    before = descriptors()
    opened = ServedShard(new_shard(), KEY)
    yield opened
    opened.close()
    assert descriptors() <= before


@pytest.fixture
def pair() -> Iterator[tuple[Connection, Connection]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = Connection(socket.create_connection(listener.getsockname()))
        other = Connection(listener.accept()[0])
    for end in (one, other):
        end.start(5)
    yield one, other
    for end in (one, other):
        end.close()


@pytest.mark.parametrize(
    "regions", [[Region(0, 100)], [Region(0, 10, (4,), (100,))], [Region(5, 9), Region(70, 1)], []]
)
def test_a_chunk_carries_its_checksum(
    source: ServedShard, pair: tuple[Connection, Connection], regions: list[Region]
) -> None:
    sender, receiver = pair
    source.send_chunk(sender, regions)
    reply = chunk_format.receive_reply(receiver)
    data = receiver.receive(reply.nbytes)
    assert len(data) == sum(region.size_bytes for region in regions)
    assert checksum(memoryview(data)) == reply.crc32


def test_a_planned_damage_changes_the_bytes_of_one_chunk(
    source: ServedShard, pair: tuple[Connection, Connection]
) -> None:
    sender, receiver = pair
    faults = TransferFaults()
    faults.plan("corrupt_transfer")
    for is_damaged in (True, False):
        source.send_chunk(sender, [Region(0, 100)], faults)
        reply = chunk_format.receive_reply(receiver)
        assert (checksum(memoryview(receiver.receive(100))) != reply.crc32) is is_damaged


@pytest.mark.parametrize(
    "region",
    [
        Region(1 << 40, 1),
        Region(0, MOST_CHUNK_BYTES + 1),
        Region(0, 8, (2,), (1 << 50,)),
        Region(0, 8, (1 << 40,), (0,)),
    ],
)
def test_bytes_outside_of_the_shard_are_refused(
    source: ServedShard, pair: tuple[Connection, Connection], region: Region
) -> None:
    with pytest.raises(ValueError, match="is not within a shard of"):
        source.send_chunk(pair[0], [region])


def test_a_shard_that_is_being_overwritten_is_not_sent(pair: tuple[Connection, Connection]) -> None:
    fd = new_shard()
    writer = os.dup(fd)
    source = ServedShard(fd, KEY)
    assert source.is_present and content(writer)
    os.pwrite(writer, int(BufferState.WRITING).to_bytes(8, "little"), 1024)
    source.send_chunk(pair[0], [Region(0, 8)])
    assert chunk_format.receive_reply(pair[1]).kind is Kind.END
    source.close()
    os.close(writer)


def test_a_buffer_with_another_shard_is_not_opened() -> None:
    before = descriptors()
    with pytest.raises(TransferError, match="expected the shard of rank 1, generation 3, step 6, found another shard"):
        ServedShard(new_shard(), ShardKey(1, 3, 6))
    assert descriptors() <= before
