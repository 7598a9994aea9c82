"""The checksum sees what can happen to memory, at any length, with and without numpy."""

import random

import pytest

from regroup.workers.state.memory import checksum as module
from regroup.workers.state.memory import copy_threads
from regroup.workers.state.memory.checksum import Fold, checksum

PAGE = 4096
ROW = 8 * 8191


def noise(size: int) -> bytearray:
    return bytearray(random.Random(size).randbytes(size))


def of(data: bytes | bytearray) -> int:
    return checksum(memoryview(data))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 4097, ROW - 1, ROW, ROW + 1, 3 * ROW + 5])
def test_it_is_the_same_without_numpy(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = noise(size)
    fast = of(data)
    monkeypatch.setattr(module, "np", None)
    assert of(data) == fast


@pytest.mark.parametrize("size", [1, 4097, ROW, 3 * ROW + 5])
def test_any_flipped_bit_is_seen(size: int) -> None:
    data = noise(size)
    whole = of(data)
    draw = random.Random(1)
    for at in (0, size - 1, *(draw.randrange(size) for _ in range(50))):
        data[at] ^= 1 << draw.randrange(8)
        assert of(data) != whole
        data = noise(size)


def test_pages_in_each_others_place_and_stale_pages_are_seen() -> None:
    data = noise(40 * ROW)
    whole = of(data)
    pages = len(data) // PAGE
    draw = random.Random(2)
    for _ in range(100):
        one, other = draw.sample(range(pages), 2)
        torn = bytearray(data)
        torn[one * PAGE : (one + 1) * PAGE] = data[other * PAGE : (other + 1) * PAGE]
        assert of(torn) != whole, "a page twice"
        torn[other * PAGE : (other + 1) * PAGE] = data[one * PAGE : (one + 1) * PAGE]
        assert of(torn) != whole, "two pages swapped"


def test_it_reads_memory_that_it_must_not_write() -> None:
    assert of(bytes(3 * ROW)) == of(bytearray(3 * ROW))


@pytest.mark.parametrize("has_numpy", [True, False])
def test_parts_may_be_folded_in_any_order(has_numpy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    data = noise(7 * ROW + 13)
    whole = of(data)
    if not has_numpy:
        monkeypatch.setattr(module, "np", None)
    first, second = Fold(), Fold()
    with memoryview(data) as view:
        for fold, start, stop in ((first, 6 * ROW, len(data)), (second, 0, 2 * ROW), (first, 2 * ROW, 6 * ROW)):
            fold.add(view[start:stop])
    second.merge(first)
    assert second.checksum() == whole


def test_several_threads_find_the_same_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_threads, "LEAST_PART_BYTES", ROW)
    data = memoryview(noise(9 * ROW + 5))
    assert checksum(data, 4) == checksum(data, 1)
