"""Shards that count as intact without being read again."""

import os
from collections.abc import Callable, Iterator

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


def write(fd: int, step: int, rank: int = 3) -> None:
    buffer = ShardBuffer(os.dup(fd))
    buffer.begin(PLAN, {}, generation=2, step=step, rank=rank, world_size=4, layout_hash="h")
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
    assert check.open([fd]).verify(2, 5) == ([], []), "the damage is reported once"
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


class Memory:
    """Two buffers each of ranks 0 and 1, and a mirrored shard of rank 2."""

    def __init__(self, *steps: int) -> None:
        self.fds = [os.memfd_create("shard") for _ in range(5)]
        for fd, rank, step in zip(self.fds, (0, 0, 1, 1, 2), steps, strict=True):
            write(fd, step, rank)
        self.check = ShardCheck()

    def verify(self, within_s: float = 60.0) -> tuple[dict[int, set[int]], int]:
        """Return step → ranks that are verified, and the number of shards that were found to be damaged."""
        held, damaged = self.check.open(self.fds).verify_newest(4, within_s)
        found: dict[int, set[int]] = {}
        for shard in held:
            found.setdefault(shard.step, set()).update({shard.rank} if shard.is_verified else ())
        return found, len(damaged)


@pytest.fixture
def memory() -> Iterator[Callable[..., Memory]]:
    made: list[Memory] = []

    def make(*steps: int) -> Memory:
        made.append(Memory(*steps))
        return made[-1]

    yield make
    for each in made:
        for fd in each.fds:
            os.close(fd)


def test_the_newest_set_of_the_own_ranks_is_verified_and_all_sets_are_listed(memory: Callable[..., Memory]) -> None:
    assert memory(8, 9, 9, 8, 9).verify() == ({8: set(), 9: {0, 1, 2}}, 0)
    assert memory(8, 9, 9, 8, 12).verify() == ({8: set(), 9: {0, 1}, 12: set()}, 0), "a mirrored set is not the newest"


def test_a_set_that_one_rank_has_not_taken_is_not_the_newest(memory: Callable[..., Memory]) -> None:
    """Let rank 1 die before its snapshot of step 9."""
    assert memory(8, 9, 7, 8, 5).verify() == ({5: set(), 7: set(), 8: {0, 1}, 9: set()}, 0)


def test_shards_that_are_not_read_in_time_are_listed_as_unverified(
    memory: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = memory(8, 9, 9, 8, 5)
    assert held.verify(within_s=0.0) == ({5: set(), 8: set(), 9: set()}, 0)
    held.verify()
    monkeypatch.setattr(ShardBuffer, "verify", lambda buffer: pytest.fail("it was read before"))
    assert held.verify(within_s=0.0) == ({5: set(), 8: set(), 9: {0, 1}}, 0)


def test_a_damaged_shard_of_the_newest_set_is_reported_and_not_listed(memory: Callable[..., Memory]) -> None:
    held = memory(8, 9, 9, 8, 5)
    flip(held.fds[1])
    assert held.verify() == ({5: set(), 8: set(), 9: {1}}, 1)
    assert held.verify() == ({5: set(), 8: {0, 1}, 9: {1}}, 0), "the other set is the newest that both have"


def test_memory_without_shards_has_nothing_to_verify() -> None:
    assert ShardCheck().open([]).verify_newest(0, 60.0) == ([], [])
