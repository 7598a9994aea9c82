"""Transfers over real sockets: complete or not at all, from any agent that has the shard."""

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from regroup.workers.agent.transfer.chunk_client import Read
from regroup.workers.agent.transfer.chunk_format import CHUNK_BYTES
from regroup.workers.agent.transfer.engine import TransferEngine
from regroup.workers.agent.transfer.shard_store import NoMemoryError, TransferError
from regroup.workers.contract.agent_records import TransferAddress
from regroup.workers.os.node_facts import bind_listener
from regroup.workers.state.buffer_layout import HEADER_BYTES
from regroup.workers.state.shard_buffer import BufferState, ShardBuffer
from regroup.workers.state.slices.boxes import Region
from tests.workers.agent.open_descriptors import descriptors
from tests.workers.agent.transfer.held_shards import COLUMNS, KEY, PLAN, ROWS, agents, content, new_shard, until


@pytest.fixture
def shard() -> Iterator[int]:
    fd = new_shard()
    yield fd
    os.close(fd)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = descriptors()
    yield
    assert descriptors() <= before, "no descriptor leaks"
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("regroup-")]
    assert names == [], "no thread is left"


async def test_a_shard_is_stored_and_fetched_unchanged(shard: int) -> None:
    async with agents() as (agent,):
        sent, seconds = await agent.engine.put(agent.address, KEY, shard, 4711)
        assert sent == os.fstat(shard).st_size > 2 * CHUNK_BYTES and seconds > 0
        fd, size_bytes = await agent.engine.get([agent.address], KEY, agent.store.allocate)
        assert (content(fd)[HEADER_BYTES:], size_bytes) == (content(shard)[HEADER_BYTES:], 4711)
        with contextlib.closing(ShardBuffer(fd)) as buffer:
            assert buffer.verify()


async def test_boxes_of_a_shard_arrive_where_they_belong() -> None:
    """Fetch a column block, a contiguous block of rows, and single bytes, into one buffer with other positions."""
    async with agents(2) as (here, there):
        data = content(there.store.add())
        described = (await here.engine.indexes(there.address, 3, 5, [1]))[1]
        starts = {name: start for name, _, start in described.table.rows()}
        assert (list(starts), described.world_size) == (["weight", "bias"], 2)
        at, row = starts["weight"], 8 * COLUMNS
        columns = Region(at + 16, 80, (ROWS,), (row,))
        rows = Region(at + 7 * row, 3 * row)
        tail = Region(starts["bias"] + 3, 5)
        target = memoryview(bytearray(columns.size_bytes + rows.size_bytes + 5))
        places = [
            Region(0, columns.size_bytes),
            Region(columns.size_bytes, rows.size_bytes),
            Region(len(target) - 5, 5),
        ]
        reads = [Read(*each) for each in zip((columns, rows, tail), [target] * 3, places, strict=True)]
        await here.engine.read([there.address], KEY, reads)
        lines = [data[at + number * row + 16 : at + number * row + 96] for number in range(ROWS)]
        assert bytes(target) == b"".join(lines) + data[rows.offset : rows.end] + data[tail.offset : tail.end]


async def test_reads_of_nothing_send_no_request() -> None:
    async with agents() as (agent,):
        await agent.engine.read([], KEY, [Read(Region(0, 0), memoryview(b""), Region(0, 0))])


async def test_a_missing_shard_is_an_error_that_names_it(shard: int) -> None:
    async with agents() as (agent,):
        missing = replace(KEY, step=6)
        with pytest.raises(TransferError, match="no shard of rank 1, generation 3, step 6 here"):
            await agent.engine.get([agent.address], missing, agent.store.allocate)
        with pytest.raises(TransferError, match="no shard of rank 1, generation 3, step 6 here"):
            await agent.engine.indexes(agent.address, 3, 6, [1])
        with pytest.raises(TransferError, match="no agent has it"):
            await agent.engine.get([], missing, agent.store.allocate)


async def test_requests_without_the_token_are_refused(shard: int) -> None:
    async with agents() as (agent,):
        agent.store.add()
        stranger = replace(agent.address, token="0" * 32)
        for call in (
            agent.engine.put(stranger, replace(KEY, step=5), shard, 1),
            agent.engine.get([stranger], KEY, agent.store.allocate),
            agent.engine.read([stranger], KEY, [Read(Region(0, 8), memoryview(bytearray(8)), Region(0, 8))]),
            agent.engine.indexes(stranger, 3, 5, [1]),
        ):
            with pytest.raises(TransferError, match="invalid proof"):
                await call


async def test_a_damaged_chunk_is_fetched_from_the_next_agent() -> None:
    async with agents(3) as (here, one, other):
        data = content(one.store.add())
        other.store.put(KEY, new_shard(KEY, _tensors(data)), 12)
        one.engine.faults.plan("corrupt_transfer")
        fd, _ = await here.engine.get([one.address, other.address], KEY, here.store.allocate)
        assert content(fd)[HEADER_BYTES:] == data[HEADER_BYTES:]
        os.close(fd)


async def test_a_damaged_chunk_is_reported_although_the_shard_arrives() -> None:
    async with agents(2) as (here, there):
        there.store.add()
        there.engine.faults.plan("corrupt_transfer")
        reasons = list[str]()
        engine = TransferEngine(here.store, reasons.append)
        fd, _ = await engine.get([there.address], KEY, here.store.allocate)
        os.close(fd)
        assert reasons == [f"127.0.0.1:{there.address.port} delivered 1 damaged chunks of {KEY}"]


async def test_a_chunk_that_is_damaged_three_times_is_an_error_that_names_agent_and_rank() -> None:
    async with agents(2) as (here, there):
        there.store.add()
        for _ in range(30):
            there.engine.faults.plan("corrupt_transfer")
        with pytest.raises(
            TransferError,
            match=f"shard of rank 1.*127.0.0.1:{there.address.port}: checksum mismatch: a chunk arrived damaged 3",
        ):
            await here.engine.get([there.address], KEY, here.store.allocate)


async def test_an_agent_that_ends_during_a_read_is_replaced_by_the_next_one() -> None:
    """Let the first agent send a nonce and end. Then the second one delivers everything."""
    async with agents(2) as (here, there):
        data = content(there.store.add())
        with bind_listener("127.0.0.1", None) as listener:
            dying = TransferAddress("127.0.0.1", listener.getsockname()[1], "0" * 32)
            ended = threading.Thread(target=_answer_and_end, args=(listener,))
            ended.start()
            fd, _ = await here.engine.get([dying, there.address], KEY, here.store.allocate)
            listener.shutdown(socket.SHUT_RDWR)
            await asyncio.to_thread(ended.join)
        assert content(fd)[HEADER_BYTES:] == data[HEADER_BYTES:]
        os.close(fd)


async def test_a_failed_fetch_names_the_node_that_ended_and_not_those_that_lack_the_shard() -> None:
    async with agents(2) as (here, there):
        with bind_listener("127.0.0.1", None) as listener:
            dying = TransferAddress("127.0.0.1", listener.getsockname()[1], "0" * 32, "dying")
            ended = threading.Thread(target=_answer_and_end, args=(listener,))
            ended.start()
            holders = [dying, replace(there.address, node_id="there")]
            reads = [Read(Region(0, 8), memoryview(bytearray(8)), Region(0, 8))]
            for fetching in (here.engine.get(holders, KEY, here.store.allocate), here.engine.read(holders, KEY, reads)):
                with pytest.raises(TransferError) as error:
                    await fetching
                assert error.value.failed_holders == ("dying",)
            listener.shutdown(socket.SHUT_RDWR)
            await asyncio.to_thread(ended.join)


async def test_a_shard_that_changes_during_the_transfer_is_refused(shard: int) -> None:
    """Check this because a rank of the next generation may overwrite the buffer."""
    async with agents() as (agent,):
        size = os.fstat(shard).st_size
        sending = asyncio.create_task(agent.engine.put(agent.address, KEY, shard, 1, bytes_per_s=2 * size))
        while not sending.done():
            os.pwrite(shard, os.urandom(4), size - 8)
            await asyncio.sleep(0.01)
        with pytest.raises(TransferError, match="checksum mismatch"):
            await sending
        assert agent.store.shards == {}


async def test_a_shard_that_a_rank_begins_to_overwrite_is_not_sent_further(shard: int) -> None:
    async with agents() as (agent,):
        size = os.fstat(shard).st_size
        sending = asyncio.create_task(agent.engine.put(agent.address, KEY, shard, 1, bytes_per_s=size))
        await asyncio.sleep(0.1)
        os.pwrite(shard, int(BufferState.WRITING).to_bytes(8, "little"), 1024)
        with pytest.raises(TransferError):
            await sending
        assert agent.store.shards == {}


async def test_a_shard_of_another_set_is_refused(shard: int) -> None:
    async with agents() as (agent,):
        with pytest.raises(TransferError, match="found another shard: rank 1, generation 3, step 5"):
            await agent.engine.put(agent.address, replace(KEY, step=6), shard, 1)
        assert agent.store.shards == {}


async def test_a_node_without_free_memory_refuses_a_shard(shard: int) -> None:
    async with agents() as (agent,):
        agent.store.memory_bytes = 1000
        before = descriptors()
        with pytest.raises(NoMemoryError, match="no memory for"):
            await agent.engine.put(agent.address, KEY, shard, 1)
        assert agent.store.shards == {}
        await until(lambda: descriptors() <= before)


async def test_an_unreachable_agent_is_an_error(shard: int) -> None:
    async with agents() as (agent,):
        with bind_listener("127.0.0.1", None) as gone:
            address = TransferAddress("127.0.0.1", gone.getsockname()[1], "0" * 32)
        with pytest.raises(TransferError, match=f"transfer with 127.0.0.1:{address.port} failed: ConnectionRefused"):
            await agent.engine.put(address, KEY, shard, 1)


async def test_a_transfer_respects_its_rate(shard: int) -> None:
    async with agents() as (agent,):
        size = os.fstat(shard).st_size
        _, seconds = await agent.engine.put(agent.address, KEY, shard, 1, bytes_per_s=4 * size)
        assert 0.15 < seconds < 5


async def test_a_cancelled_read_writes_nothing_later() -> None:
    """Check this because the generation is killed and the next one uses the same memory."""
    with bind_listener("127.0.0.1", None) as silent:
        async with agents() as (agent,):
            address = TransferAddress("127.0.0.1", silent.getsockname()[1], "0" * 32)
            read = Read(Region(0, 8), memoryview(bytearray(8)), Region(0, 8))
            reading = asyncio.create_task(agent.engine.read([address], KEY, [read]))
            accepted, _ = await asyncio.to_thread(silent.accept)
            started = time.monotonic()
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert time.monotonic() - started < 2
            assert not [thread for thread in threading.enumerate() if thread.name == "regroup-stream"]
            accepted.close()


async def test_a_mirror_waits_while_either_side_recovers(shard: int) -> None:
    async with agents(2) as (here, there):
        for agent in (here, there):
            with agent.engine.priorities.recovery():
                sending = asyncio.create_task(here.engine.put(there.address, KEY, shard, 1))
                await asyncio.sleep(0.3)
                assert not sending.done()
            await sending


async def test_a_cancelled_mirror_that_waits_ends_at_once(shard: int) -> None:
    async with agents(2) as (here, there):
        with here.engine.priorities.recovery():
            sending = asyncio.create_task(here.engine.put(there.address, KEY, shard, 1))
            await asyncio.sleep(0.2)
            started = time.monotonic()
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            assert time.monotonic() - started < 1
        assert there.store.shards == {}


async def test_the_event_loop_responds_during_transfers() -> None:
    async with agents(2) as (here, there):
        there.store.add()
        longest, ticking = 0.0, True

        async def tick() -> None:
            nonlocal longest
            while ticking:
                started = time.monotonic()
                await asyncio.sleep(0.005)
                longest = max(longest, time.monotonic() - started)

        ticks = asyncio.create_task(tick())
        for _ in range(20):
            fd, _ = await here.engine.get([there.address], KEY, here.store.allocate)
            os.close(fd)
        ticking = False
        await ticks
        assert longest < 0.5, "a heartbeat is due every second"


def _answer_and_end(listener: socket.socket) -> None:
    """Answer each client with a nonce and then end its connection."""
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            connection.sendall(b'{"nonce": "0"}\n')
            connection.recv(1000)
            connection.close()


def _tensors(data: bytes) -> dict[str, bytes]:
    """Return name → bytes of the tensors in a shard."""
    start = len(data) - PLAN.data_bytes
    return {entry.name: data[start + entry.start : start + entry.start + entry.nbytes] for entry in PLAN.entries}
