"""The buffer pool of a node: verified, damaged and retained shards."""

import os
from collections.abc import Iterator

import pytest

from regroup.workers.agent.snapshots.buffer_pool import BufferPool
from regroup.workers.agent.snapshots.shard_check import OpenShards
from regroup.workers.contract.messages import BuffersRequest, Restore
from regroup.workers.state.buffer_layout import BufferLayout, Entry
from regroup.workers.state.memory.checksum_regions import Group
from regroup.workers.state.shard_buffer import ShardBuffer
from tests.workers.agent.open_descriptors import memory_files

ALIKE = "00" * 7 + "aa"
PLAN = BufferLayout([Entry("w", "uint8", (100,), (0,), (100,), 100)], {"w": Group(ALIKE, 0, 2)})


@pytest.fixture
def pool() -> Iterator[BufferPool]:
    created = BufferPool()
    yield created
    created.close()


def buffers(pool: BufferPool, rank: int = 0) -> list[ShardBuffer]:
    fds, *_ = pool.lend(BuffersRequest(rank, 1, PLAN.buffer_bytes), Restore("none"))
    return [ShardBuffer(os.dup(fd)) for fd in fds]


def opened(pool: BufferPool) -> OpenShards:
    return pool.check.open(pool.fds())


def write(buffer: ShardBuffer, step: int, fill: int, rank: int = 0) -> None:
    buffer.begin(PLAN, {}, generation=1, step=step, rank=rank, world_size=2, layout_hash="h")
    buffer.view(PLAN.entries[0])[:] = bytes([fill]) * 100
    buffer.commit()


def test_a_held_shard_has_the_digests_of_its_replicated_parts(pool: BufferPool) -> None:
    first, second, _ = buffers(pool)
    write(first, 4, 1)
    write(second, 5, 2)
    four, five = opened(pool).describe()
    assert four.digests.keys() == five.digests.keys() == {ALIKE}
    assert four.digests != five.digests


def test_a_corrupted_shard_is_damaged_and_an_incomplete_one_is_not(pool: BufferPool) -> None:
    first, second, third = buffers(pool)
    write(first, 4, 1)
    write(second, 5, 2)
    third.begin(PLAN, {}, generation=1, step=6, rank=0, world_size=2, layout_hash="h")
    second.view(PLAN.entries[0])[7] ^= 1
    assert [shard.step for shard in opened(pool).describe()] == [4, 5], "the data was not read yet"
    intact, damaged = opened(pool).verify(1, 5)
    assert intact == [] and [(place, header.rank, header.step) for place, header in damaged] == [(1, 0, 5)]
    assert [shard.step for shard in opened(pool).describe()] == [4]
    intact, damaged = opened(pool).verify(1, 4)
    assert [shard.step for shard in intact] == [4] and damaged == []
    write(second, 6, 3)
    assert [shard.step for shard in opened(pool).describe()] == [4, 6]
    assert opened(pool).verify(1, 6)[1] == []


def test_a_rank_cannot_shorten_a_buffer_that_its_agent_reads(pool: BufferPool) -> None:
    """Check this because an access beyond the end of a mapped file would end the agent."""
    write(buffers(pool)[0], 5, 2)
    fds, source = pool.lend(BuffersRequest(0, 1, PLAN.buffer_bytes), Restore("memory", 5, 1))
    assert source == 0
    os.posix_fallocate(fds[1], 0, 1 << 20)
    for fd in fds[:2]:
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 0)
    assert len(opened(pool).verify(1, 5)[0]) == 1


def test_a_rank_may_change_a_shard_after_its_buffer_was_lent_again(pool: BufferPool) -> None:
    write(buffers(pool)[0], 5, 2)
    assert len(opened(pool).verify(1, 5)[0]) == 1
    lent = buffers(pool)[0]
    lent.view(PLAN.entries[0])[7] ^= 1
    assert opened(pool).verify(1, 5)[0] == []


def test_ranks_do_not_overwrite_the_set_from_which_they_restore(pool: BufferPool) -> None:
    """Check a change of layout: rank 0 requests larger buffers, and rank 1 no longer exists."""
    for rank in (0, 1):
        first, second, _ = buffers(pool, rank)
        write(first, 4, 1, rank)
        write(second, 5, 2, rank)
    pool.retain_source(1, 5)
    restore = Restore("memory", 5, 1, world_size=2)
    fds, source = pool.lend(BuffersRequest(0, 2, 2 * PLAN.buffer_bytes), restore)
    retained = pool.source_shards(1, 5)
    assert (len(fds), source, list(retained)) == (3, -1, [0, 1]) and not set(fds) & set(retained.values())
    shards = [ShardBuffer(os.dup(fd)) for fd in retained.values()]
    assert [(shard.header().rank, shard.header().step) for shard in shards] == [(0, 5), (1, 5)]
    assert all(shard.verify() for shard in shards)
    assert [(shard.rank, shard.step) for shard in opened(pool).describe()] == [(0, 5), (1, 5)], (
        "the shards are still listed"
    )
    assert pool.find(1, 1, 5) is not None, "other nodes can fetch it"
    pool.retain_source(1, 5)
    _, source = pool.lend(BuffersRequest(0, 3, 2 * PLAN.buffer_bytes), restore)
    assert (source, pool.source_shards(1, 5)) == (-1, retained), "a generation that fails at once releases nothing"
    before = memory_files()
    pool.release_source()
    assert opened(pool).describe() == [] and memory_files() == before - 2


def test_the_mirrored_set_is_retained_in_addition_to_the_restored_one(pool: BufferPool) -> None:
    first, second, _ = buffers(pool)
    write(first, 4, 1)
    write(second, 5, 2)
    pool.retain_mirrored(1, 4)
    pool.retain_source(1, 5)
    pool.release_source()
    assert [shard.step for shard in opened(pool).describe()] == [4]
    pool.retain_mirrored(2, 8)
    assert opened(pool).describe() == []


def test_ranks_of_the_original_size_restore_from_a_retained_set(pool: BufferPool) -> None:
    """Check a job that grew and failed before its first complete set, and returns to its former size."""
    write(buffers(pool)[0], 5, 2)
    pool.retain_source(1, 5)
    retained = pool.source_shards(1, 5)[0]
    buffers(pool)
    pool.reuse_source_shard(0, 1, 5)
    fds, source = pool.lend(BuffersRequest(0, 3, PLAN.buffer_bytes), Restore("memory", 5, 1))
    assert fds[source] == retained and pool.source_shards(1, 5) == {}
    pool.reuse_source_shard(0, 1, 5)
    assert pool.lend(BuffersRequest(0, 3, PLAN.buffer_bytes), Restore("memory", 5, 1)) == (fds, source)


def test_only_buffers_that_were_lent_receive_parts_of_a_state(pool: BufferPool) -> None:
    fds, _ = pool.lend(BuffersRequest(0, 1, PLAN.buffer_bytes), Restore("none"))
    assert pool.buffer_of(0, 2) == fds[2]
    for rank, number in ((0, 3), (0, -1), (1, 0)):
        with pytest.raises(ValueError, match=f"rank {rank} has no buffer {number}"):
            pool.buffer_of(rank, number)
