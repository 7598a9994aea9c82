"""Shards that count as intact without being read again."""

import os
from collections.abc import Iterator

import pytest

from regroup.workers.agent.snapshots.shard_check import ShardCheck
from regroup.workers.state.buffer_layout import HEADER_BYTES, BufferLayout, Entry
from regroup.workers.state.shard_buffer import ShardBuffer

PLAN = BufferLayout([Entry("w", "uint8", (5000,), (0,), (5000,), 5000)])


@pytest.fixture
def fd() -> Iterator[int]:
    number = os.memfd_create("shard")
    write(number, 5)
    yield number
    os.close(number)


def write(fd: int, step: int) -> None:
    buffer = ShardBuffer(os.dup(fd))
    buffer.begin(PLAN, {}, generation=2, step=step, rank=3, world_size=4, layout_hash="h")
    buffer.view(PLAN.entries[0])[:] = bytes([step]) * 5000
    buffer.commit()
    buffer.close()


def flip(fd: int) -> None:
    """Change one bit of the data."""
    at = os.fstat(fd).st_size - 8
    os.pwrite(fd, bytes([os.pread(fd, 1, at)[0] ^ 1]), at)


def test_a_listed_shard_is_described_by_its_header(fd: int) -> None:
    (found,) = ShardCheck().open([fd]).describe()
    assert (found.rank, found.world_size, found.generation, found.step, found.layout_hash) == (3, 4, 2, 5, "h")


def test_a_damaged_index_is_noticed_without_reading_the_data(fd: int) -> None:
    os.pwrite(fd, b"X", HEADER_BYTES + 3)
    assert ShardCheck().open([fd]).describe() == []


def test_only_the_shards_of_the_set_are_read(fd: int) -> None:
    check = ShardCheck()
    flip(fd)
    assert check.open([fd]).verify(2, 4) == check.open([fd]).verify(1, 5) == ([], [])
    intact, damaged = check.open([fd]).verify(2, 5)
    assert intact == [] and [(place, header.rank) for place, header in damaged] == [(0, 3)]
    assert check.open([fd]).describe() == [], "it is not listed again"


def test_an_intact_shard_is_read_once(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    verify = ShardBuffer.verify
    monkeypatch.setattr(ShardBuffer, "verify", lambda buffer: read.append(1) or verify(buffer))
    check = ShardCheck()
    for _ in range(3):
        assert len(check.open([fd]).verify(2, 5)[0]) == 1
    assert len(read) == 1
    check.forget([fd])
    assert len(check.open([fd]).verify(2, 5)[0]) == 1 and len(read) == 2, "a rank could have written to it"
    write(fd, 6)
    assert len(check.open([fd]).verify(2, 6)[0]) == 1 and len(read) == 3, "other content"


def test_a_shard_that_was_verified_on_arrival_is_not_read_again(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check = ShardCheck()
    check.remember(fd)
    monkeypatch.setattr(ShardBuffer, "verify", lambda buffer: pytest.fail("it was read"))
    assert len(check.open([fd]).verify(2, 5)[0]) == 1
