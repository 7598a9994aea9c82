"""The state in the memory of nodes, over real sockets: found shards, reads, and the shards that are lost."""

import os
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from regroup.workers.agent.slices.memory_state import LocalShards, MemoryHolder, memory_state
from regroup.workers.agent.slices.saved_state import SavedState, SliceRead, StateLostError
from regroup.workers.agent.transfer.shard_store import ShardKey
from regroup.workers.contract.agent_records import ShardHolder
from regroup.workers.contract.messages import Restore
from regroup.workers.os.descriptors import OwnDescriptors
from regroup.workers.state.buffer_layout import BufferLayout, Entry
from regroup.workers.state.slices.boxes import Region
from tests.workers.agent.transfer.held_shards import Agent, agents, new_shard

RESTORE = Restore("memory", 5, 3, world_size=2)
ROWS = 1000


def key(rank: int, step: int = 5) -> ShardKey:
    return ShardKey(rank, 3, step)


def shard(rank: int, value: int, step: int = 5) -> int:
    """Return a memory file with one half of a tensor, all of whose bytes are `value`."""
    entry = Entry("w", "uint8", (2 * ROWS,), (rank * ROWS,), (ROWS,), ROWS)
    return new_shard(key(rank, step), {"w": bytes([value]) * ROWS}, BufferLayout([entry]))


@pytest.fixture
async def nodes() -> AsyncIterator[list[Agent]]:
    """Three agents. Agents 1 and 2 have the shard of rank 1."""
    async with agents(3) as made:
        for agent in made[1:]:
            agent.store.put(key(1), shard(1, 11), ROWS)
        yield made


def holder(nodes: list[Agent], number: int, ranks: tuple[int, ...] = (1,)) -> ShardHolder:
    return ShardHolder(replace(nodes[number].address, node_id=f"node-{number}"), ranks)


def local(*fds: int, ranks: tuple[int, ...] = (0,)) -> LocalShards:
    return LocalShards(ranks, OwnDescriptors(fds))


async def found_by(nodes: list[Agent], shards: LocalShards, holders: list[ShardHolder], *facts_of: int) -> SavedState:
    return await memory_state(RESTORE, shards, holders, nodes[0].engine, facts_of)


async def read(state: SavedState, place: MemoryHolder) -> bytes:
    """Return the values that a holder on another node has of the tensor."""
    (start,) = (table.starts[0] for at, table in zip(state.held.holders, state.held.tables, strict=True) if at == place)
    memory = memoryview(bytearray(ROWS))
    await state.reader.read(place, [SliceRead(Region(start, ROWS), memory, Region(0, ROWS))])
    return bytes(memory)


async def test_shards_here_are_near_and_the_others_are_read_from_their_nodes(nodes: list[Agent]) -> None:
    fd = shard(0, 10)
    holders = [holder(nodes, 1)]
    state = await found_by(nodes, local(fd), holders)
    here, there = MemoryHolder(0, None), MemoryHolder(1, holder(nodes, 1).address)
    assert list(state.held.holders) == [here, there]
    assert list(state.near) == [here] and state.near[here].readonly
    assert state.near[here] == os.pread(fd, os.fstat(fd).st_size, 0)
    assert (state.world_size, state.layout_hash, state.facts) == (2, "0123456789abcdef", {0: {"seed": 7}})
    assert state.held.tensors() == {"w": ("uint8", (2 * ROWS,))}
    assert state.reader.received_bytes == 0, "the facts of rank 0 are here"
    assert await read(state, there) == bytes([11]) * ROWS
    assert state.reader.received_bytes == ROWS
    os.close(fd)


async def test_a_shard_that_is_here_is_not_requested_elsewhere(nodes: list[Agent]) -> None:
    fd = shard(1, 12)
    nodes[1].store.put(key(0), shard(0, 10), ROWS)
    state = await found_by(nodes, local(fd, ranks=(1,)), [holder(nodes, 1, (0, 1))])
    assert set(state.held.holders) == {MemoryHolder(1, None), MemoryHolder(0, holder(nodes, 1).address)}
    os.close(fd)


async def test_facts_of_ranks_elsewhere_are_read(nodes: list[Agent]) -> None:
    fd = shard(0, 10)
    state = await found_by(nodes, local(fd), [holder(nodes, 1)], 0, 1)
    assert state.facts == {0: {"seed": 7}, 1: {"seed": 7}}
    assert state.reader.received_bytes == len('{"seed":7}')
    os.close(fd)


async def test_another_holder_delivers_what_the_first_one_does_not(nodes: list[Agent]) -> None:
    fd = shard(0, 10)
    state = await found_by(nodes, local(fd), [holder(nodes, 1), holder(nodes, 2)])
    await nodes[1].engine.close()
    assert await read(state, MemoryHolder(1, holder(nodes, 1).address)) == bytes([11]) * ROWS
    await nodes[2].engine.close()
    with pytest.raises(StateLostError) as lost:
        await read(state, MemoryHolder(1, holder(nodes, 1).address))
    assert set(lost.value.failed_holders) == {"node-1", "node-2"}
    os.close(fd)


async def test_a_shard_that_no_node_has_is_named(nodes: list[Agent]) -> None:
    fd = shard(0, 10)
    with pytest.raises(StateLostError, match=r"rank 1, generation 3, step 5 is lost \(1 of 2 are\): no node has it"):
        await found_by(nodes, local(fd), [])
    with pytest.raises(StateLostError, match=r"rank 0, generation 3, step 5 is lost \(1 of 2 are\): no node has it"):
        await found_by(nodes, local(ranks=()), [holder(nodes, 1)])
    os.close(fd)


async def test_a_node_that_does_not_answer_is_the_reason(nodes: list[Agent]) -> None:
    fd = shard(0, 10)
    await nodes[1].engine.close()
    with pytest.raises(StateLostError, match="rank 1, generation 3, step 5 is lost") as lost:
        await found_by(nodes, local(fd), [holder(nodes, 1)])
    assert lost.value.failed_holders == ("node-1",)
    os.close(fd)


async def test_a_buffer_here_that_got_another_step_is_refused(nodes: list[Agent]) -> None:
    fd = shard(0, 10, step=6)
    with pytest.raises(StateLostError, match="another one, of step 6"):
        await found_by(nodes, local(fd), [holder(nodes, 1)])
    os.close(fd)


async def test_an_owner_may_close_a_shard_before_its_memory_is_read(nodes: list[Agent]) -> None:
    """Check with the same number: it names another shard by then."""
    fd, other = shard(0, 10), shard(0, 99)
    shards = local(fd)
    os.dup2(other, fd)
    state = await found_by(nodes, shards, [holder(nodes, 1)])
    (near,) = state.near.values()
    assert near.tobytes().count(bytes([10]) * ROWS) == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(shards.descriptors.numbers[0])
    os.close(fd)
    os.close(other)
