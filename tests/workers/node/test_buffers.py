"""What a node says of the snapshots in its memory: which are whole, which were and are not, what others hold too."""

import os
from collections.abc import Iterator

import pytest

from regroup.workers.contract import Restore, WantBuffers
from regroup.workers.node.buffers import BufferPool
from regroup.workers.state.buffer import ShardBuffer
from regroup.workers.state.plan import Entry, Plan
from regroup.workers.state.regions import Group

ALIKE = "00" * 7 + "aa"
PLAN = Plan([Entry("w", "uint8", (100,), (0,), (100,), 100)], {"w": Group(ALIKE, 0, 2)})


@pytest.fixture
def pool() -> Iterator[BufferPool]:
    made = BufferPool()
    yield made
    made.close()


def buffers(pool: BufferPool) -> list[ShardBuffer]:
    fds, _ = pool.lend(WantBuffers(0, 1, PLAN.buffer_bytes), Restore("none"))
    return [ShardBuffer(os.dup(fd)) for fd in fds]


def write(buffer: ShardBuffer, step: int, fill: int) -> None:
    buffer.begin(PLAN, {}, generation=1, step=step, rank=0, world_size=2, layout_hash="h")
    buffer.view(PLAN.entries[0])[:] = bytes([fill]) * 100
    buffer.commit()


def test_a_holding_says_what_others_should_hold_too(pool: BufferPool) -> None:
    first, second, _ = buffers(pool)
    write(first, 4, 1)
    write(second, 5, 2)
    four, five = pool.holdings()
    assert four.alike.keys() == five.alike.keys() == {ALIKE}
    assert four.alike != five.alike


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
