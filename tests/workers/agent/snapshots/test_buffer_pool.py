"""What a node says of the snapshots in its memory: which are whole, which were and are not, what others hold too."""

import os
from collections.abc import Iterator

import pytest

from regroup.workers.agent.snapshots.buffer_pool import BufferPool
from regroup.workers.contract.messages import BuffersRequest, Restore
from regroup.workers.state.buffer_layout import BufferLayout, Entry
from regroup.workers.state.checksum_regions import Group
from regroup.workers.state.shard_buffer import ShardBuffer
from tests.workers.agent.open_descriptors import memory_files

ALIKE = "00" * 7 + "aa"
PLAN = BufferLayout([Entry("w", "uint8", (100,), (0,), (100,), 100)], {"w": Group(ALIKE, 0, 2)})


@pytest.fixture
def pool() -> Iterator[BufferPool]:
    made = BufferPool()
    yield made
    made.close()


def buffers(pool: BufferPool, rank: int = 0) -> list[ShardBuffer]:
    fds, *_ = pool.lend(BuffersRequest(rank, 1, PLAN.buffer_bytes), Restore("none"))
    return [ShardBuffer(os.dup(fd)) for fd in fds]


def write(buffer: ShardBuffer, step: int, fill: int, rank: int = 0) -> None:
    buffer.begin(PLAN, {}, generation=1, step=step, rank=rank, world_size=2, layout_hash="h")
    buffer.view(PLAN.entries[0])[:] = bytes([fill]) * 100
    buffer.commit()


def test_a_holding_says_what_others_should_hold_too(pool: BufferPool) -> None:
    first, second, _ = buffers(pool)
    write(first, 4, 1)
    write(second, 5, 2)
    four, five = pool.holdings()
    assert four.digests.keys() == five.digests.keys() == {ALIKE}
    assert four.digests != five.digests


def test_a_set_that_was_whole_and_is_not_is_named_and_one_that_never_was_is_not(pool: BufferPool) -> None:
    first, second, third = buffers(pool)
    write(first, 4, 1)
    write(second, 5, 2)
    third.begin(PLAN, {}, generation=1, step=6, rank=0, world_size=2, layout_hash="h")
    second.view(PLAN.entries[0])[7] ^= 1
    assert [holding.step for holding in pool.holdings()] == [4]
    assert [(header.rank, header.step) for header in pool.damaged] == [(0, 5)]
    write(second, 6, 3)
    assert [holding.step for holding in pool.holdings()] == [4, 6]
    assert pool.damaged == []


def test_what_other_ranks_are_to_restore_is_not_overwritten_by_them(pool: BufferPool) -> None:
    """Rank 0 of the next generation wants buffers of another size; there is no rank 1 any more."""
    for rank in (0, 1):
        first, second, _ = buffers(pool, rank)
        write(first, 4, 1, rank)
        write(second, 5, 2, rank)
    pool.set_aside(1, 5)
    restore = Restore("memory", 5, 1, world_size=2)
    fds, source, others = pool.lend(BuffersRequest(0, 2, 2 * PLAN.buffer_bytes), restore)
    assert (len(fds), source, len(others)) == (3, -1, 2) and not set(fds) & set(others)
    shards = [ShardBuffer(os.dup(fd)) for fd in others]
    assert [(shard.header().rank, shard.header().step) for shard in shards] == [(0, 5), (1, 5)]
    assert all(shard.verify() for shard in shards)
    assert [(holding.rank, holding.step) for holding in pool.holdings()] == [(0, 5), (1, 5)], "and found again"
    assert pool.find(1, 1, 5) is not None, "and other nodes get it from here"
    again, source, others = pool.lend(BuffersRequest(0, 3, 2 * PLAN.buffer_bytes), restore)
    assert (list(again), source, len(others)) == (list(fds), -1, 2), (
        "a generation that broke at once takes nothing away"
    )
    before = memory_files()
    pool.give_up_source()
    assert pool.holdings() == [] and memory_files() == before - 2


def test_the_set_that_mirrors_hold_stays_beside_what_is_restored(pool: BufferPool) -> None:
    first, second, _ = buffers(pool)
    write(first, 4, 1)
    write(second, 5, 2)
    pool.keep_mirrored(1, 4)
    pool.set_aside(1, 5)
    pool.give_up_source()
    assert [holding.step for holding in pool.holdings()] == [4]
    pool.keep_mirrored(2, 8)
    assert pool.holdings() == []


def test_ranks_of_the_same_size_find_what_was_set_aside(pool: BufferPool) -> None:
    """Grown, and broken before its first set was whole, the job may go back to the size that it came from."""
    write(buffers(pool)[0], 5, 2)
    pool.set_aside(1, 5)
    _, source, others = pool.lend(BuffersRequest(0, 3, PLAN.buffer_bytes), Restore("memory", 5, 1))
    assert (source, len(others)) == (-1, 1)
