"""One fetch from several agents: the bytes that each of them delivers, and the report."""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from regroup.workers.agent.transfer import shard_fetch
from regroup.workers.agent.transfer.chunk_client import Read
from regroup.workers.agent.transfer.chunk_format import CHUNK_BYTES
from regroup.workers.agent.transfer.priorities import Priorities
from regroup.workers.agent.transfer.shard_fetch import ShardFetch
from regroup.workers.agent.transfer.shard_store import TransferError
from regroup.workers.contract.agent_records import TransferAddress
from regroup.workers.os.node_facts import bind_listener
from regroup.workers.state.buffer_layout import HEADER_BYTES
from regroup.workers.state.slices.boxes import Region
from tests.workers.agent.open_descriptors import descriptors
from tests.workers.agent.transfer.held_shards import KEY, Agent, agents, content, new_shard, until

NBYTES = 2 * CHUNK_BYTES + 100


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = descriptors()
    yield
    assert descriptors() <= before, "no descriptor leaks"


def whole() -> tuple[Read, memoryview]:
    memory = memoryview(bytearray(NBYTES))
    return Read(Region(64, NBYTES), memory, Region(0, NBYTES)), memory


def gone() -> TransferAddress:
    """Return the address of an agent that has ended."""
    with bind_listener("127.0.0.1", None) as listener:
        return TransferAddress("127.0.0.1", listener.getsockname()[1], "0" * 32, "gone")


def holders(*found: Agent) -> list[TransferAddress]:
    return [agent.address for agent in found]


async def test_a_region_larger_than_a_chunk_arrives_on_several_connections() -> None:
    async with agents() as (there,):
        data = content(there.store.add())
        read, memory = whole()
        fetch = ShardFetch(holders(there), KEY, Priorities())
        await asyncio.to_thread(fetch.read, [read])
        assert bytes(memory) == data[64 : 64 + NBYTES]
        assert (fetch.received_bytes, fetch.reasons) == (NBYTES, [])


async def test_an_agent_that_is_gone_is_named_and_the_next_one_delivers() -> None:
    async with agents() as (there,):
        data = content(there.store.add())
        read, memory = whole()
        fetch = ShardFetch([gone(), *holders(there)], KEY, Priorities())
        await asyncio.to_thread(fetch.read, [read])
        assert bytes(memory) == data[64 : 64 + NBYTES]
        assert len(fetch.reasons) == 1 and "ConnectionRefusedError" in fetch.reasons[0]


async def test_damaged_chunks_count_as_received_and_come_from_the_next_agent() -> None:
    async with agents(2) as (one, other):
        data = content(one.store.add())
        copy = os.memfd_create("copy")
        os.write(copy, data)
        other.store.put(KEY, copy, 1)
        one.engine.faults.plan("corrupt_transfer")
        read, memory = whole()
        fetch = ShardFetch(holders(one, other), KEY, Priorities())
        await asyncio.to_thread(fetch.read, [read])
        assert bytes(memory) == data[64 : 64 + NBYTES]
        assert fetch.reasons == [f"127.0.0.1:{one.address.port} delivered 1 damaged chunks of {KEY}"]
        assert NBYTES < fetch.received_bytes <= NBYTES + CHUNK_BYTES


async def test_no_agent_that_delivers_is_an_error_with_all_reasons() -> None:
    async with agents() as (there,):
        fetch = ShardFetch([gone(), replace(there.address, node_id="there")], KEY, Priorities())
        with pytest.raises(TransferError, match=f"cannot fetch the shard of {KEY}: .*Refused.*no shard of") as error:
            await asyncio.to_thread(fetch.read, [whole()[0]])
        assert error.value.failed_holders == ("gone",), "the other one answered that it has no shard"


async def test_a_whole_shard_arrives_in_memory_that_the_caller_allocates() -> None:
    async with agents() as (there,):
        data = content(there.store.add(size_bytes=99))
        allocated = list[tuple[int, int]]()

        def allocate(rank: int, file_bytes: int) -> int:
            allocated.append((rank, file_bytes))
            return there.store.allocate(rank, file_bytes)

        fd, size_bytes = await asyncio.to_thread(ShardFetch(holders(there), KEY, Priorities()).get, allocate)
        assert (allocated, size_bytes) == ([(KEY.rank, len(data))], 99)
        assert content(fd)[HEADER_BYTES:] == data[HEADER_BYTES:]
        os.close(fd)


async def test_memory_of_a_shard_that_does_not_arrive_is_released() -> None:
    async with agents() as (there,):
        there.store.add()
        for _ in range(30):
            there.engine.faults.plan("corrupt_transfer")
        fetch = ShardFetch(holders(there), KEY, Priorities())
        before = descriptors()
        with pytest.raises(TransferError, match="checksum mismatch"):
            await asyncio.to_thread(fetch.get, there.store.allocate)
        await until(lambda: descriptors() <= before)


async def test_mirrors_wait_while_it_runs_and_an_abort_ends_it() -> None:
    with bind_listener("127.0.0.1", None) as silent:
        address = TransferAddress("127.0.0.1", silent.getsockname()[1], "0" * 32)
        order = Priorities()
        fetch = ShardFetch([address], KEY, order)
        running = asyncio.ensure_future(asyncio.to_thread(fetch.read, [whole()[0]]))
        accepted, _ = await asyncio.to_thread(silent.accept)
        assert order.recoveries == 1
        fetch.abort()
        with pytest.raises(TransferError):
            await running
        assert order.recoveries == 0
        accepted.close()


async def test_small_regions_use_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = list[int]()
    run_all = shard_fetch.run_all
    monkeypatch.setattr(shard_fetch, "run_all", lambda works: (streams.append(len(works)), run_all(works))[1])
    async with agents() as (there,):
        there.store.put(KEY, new_shard(), 1)
        memory = memoryview(bytearray(16))
        reads = [Read(Region(64 + 100 * at, 8), memory, Region(8 * at, 8)) for at in range(2)]
        await asyncio.to_thread(ShardFetch(holders(there), KEY, Priorities()).read, reads)
    assert streams == [1]
