"""Ranks compare what they hold alike by the checksums that a snapshot is made of."""

import os
from collections.abc import Sequence

import pytest

from regroup.workers.state.buffer_layout import HEADER_BYTES, BufferLayout, Entry
from regroup.workers.state.memory import checksum_regions
from regroup.workers.state.memory.checksum_regions import MOST, Group, Region
from regroup.workers.state.shard_buffer import ShardBuffer

SHARED = "00" * 7 + "aa"
HALF = "00" * 7 + "bb"


def plan_of(rank: int, sizes: Sequence[int] = (40, 7, 100, 64)) -> BufferLayout:
    """`w` and `b` are held by three ranks, `n` by ranks 0 and 1, `own` by each alone."""
    entries = [
        Entry(name, "uint8", (size,), (0,), (size,), size)
        for name, size in zip(("w", "own", "n", "b"), sizes, strict=True)
    ]
    groups = {name: Group(SHARED, rank, 3) for name in ("w", "b")}
    return BufferLayout(entries, groups if rank == 2 else {**groups, "n": Group(HALF, rank, 2)})


def written(plan: BufferLayout, own: int, *, buffer: ShardBuffer | None = None, wrong: str = "") -> ShardBuffer:
    buffer = buffer or ShardBuffer(os.memfd_create("region"))
    buffer.begin(plan, {"rank": own}, generation=1, step=own, rank=own, world_size=3, layout_hash="x")
    for entry in plan.entries:
        buffer.view(entry)[:] = bytes([own if entry.name == "own" else len(entry.name)]) * entry.nbytes
        if entry.name == wrong:
            buffer.view(entry)[entry.nbytes - 1] ^= 1
    buffer.commit()
    return buffer


def test_what_is_held_alike_has_equal_digests_and_skews_that_sum_to_nothing() -> None:
    buffers = [written(plan_of(rank), rank) for rank in range(3)]
    assert all(buffer.verify() for buffer in buffers)
    assert len({buffer.digests()[SHARED] for buffer in buffers}) == 1
    assert buffers[0].digests()[HALF] == buffers[1].digests()[HALF]
    assert HALF not in buffers[2].digests()
    assert sum(buffer.skew() for buffer in buffers) == 0
    assert all(buffer.skew() for buffer in buffers), "each alone says nothing"


@pytest.mark.parametrize("outlier", [0, 1, 2])
@pytest.mark.parametrize("name", ["w", "b"])
def test_one_bit_on_one_rank_is_seen_in_the_sum(outlier: int, name: str) -> None:
    buffers = [written(plan_of(rank), rank, wrong=name if rank == outlier else "") for rank in range(3)]
    assert all(buffer.verify() for buffer in buffers), "each is whole in itself"
    assert sum(buffer.skew() for buffer in buffers) != 0
    others = {buffer.digests()[SHARED] for rank, buffer in enumerate(buffers) if rank != outlier}
    assert len(others) == 1 and buffers[outlier].digests()[SHARED] not in others


def test_what_a_rank_holds_alone_is_not_compared() -> None:
    buffers = [written(plan_of(rank), rank, wrong="own" if rank == 1 else "") for rank in range(3)]
    assert sum(buffer.skew() for buffer in buffers) == 0


def test_a_group_that_is_left_out_does_not_count() -> None:
    buffers = [written(plan_of(rank), rank, wrong="n" if rank == 1 else "") for rank in range(3)]
    assert sum(buffer.skew() for buffer in buffers) != 0
    assert sum(buffer.skew({HALF}) for buffer in buffers) == 0


def test_what_an_older_plan_left_between_tensors_does_not_count() -> None:
    fresh, used = written(plan_of(0), 0), written(plan_of(1, (41, 300, 90, 120)), 1)
    again = written(plan_of(1), 1, buffer=ShardBuffer(used.memory._fd))  # pyright: ignore[reportPrivateUsage]
    assert again.digests() == fresh.digests()


def test_every_bit_of_the_table_is_covered() -> None:
    buffer = written(plan_of(0), 0)
    fd = buffer.memory._fd  # pyright: ignore[reportPrivateUsage]
    for place in range(2048, 2048 + 8 + 3 * 32):
        byte = os.pread(fd, 1, place)
        for bit in range(8):
            os.pwrite(fd, bytes([byte[0] ^ 1 << bit]), place)
            assert not buffer.verify(), (place, bit)
        os.pwrite(fd, byte, place)
    assert buffer.verify()


def test_the_table_fits_the_header_and_what_is_beyond_it_is_not_compared() -> None:
    assert 2048 + checksum_regions.TABLE_BYTES <= HEADER_BYTES
    names = [f"t{number}" for number in range(MOST + 3)]
    groups = {name: Group(f"{number:016x}", 0, 2) for number, name in enumerate(names)}
    places = checksum_regions.order_of(names, groups)
    assert len(places) == MOST + 1
    assert places[0] == (None, [MOST, MOST + 1, MOST + 2])
    found = [Region(0, 8, group, 5) for group, _ in places]
    assert checksum_regions.unpacked(checksum_regions.packed(found)) == found


def test_sums_of_a_large_job_are_exact() -> None:
    ranks, copies = 4096, 64
    digest = (1 << 32) - 1
    held = [[Region(0, 8, Group("11" * 8, rank % copies, copies), digest)] for rank in range(ranks)]
    assert sum(checksum_regions.skew(each) for each in held) == 0.0
    held[77] = [Region(0, 8, Group("11" * 8, 77 % copies, copies), digest ^ 1)]
    assert sum(checksum_regions.skew(each) for each in held) in (1.0, -1.0)
