"""The copy writes every piece to the right offset, and its checksums are those of the data."""

import ctypes
import mmap
import random

import pytest

from regroup.workers.state.memory import copy_threads
from regroup.workers.state.memory.block_copy import Piece, copy_and_sum
from regroup.workers.state.memory.checksum import BLOCK_BYTES, ROW_BYTES, checksum
from regroup.workers.state.memory.checksum_regions import Region


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "sizes",
    [
        [12, 100, 64],
        [ROW_BYTES, BLOCK_BYTES, 1],
        [3 * BLOCK_BYTES + 5, 7, 2 * BLOCK_BYTES - 64, 40],
        [1] * 500,
    ],
)
def test_pieces_and_checksums(sizes: list[int], threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_threads, "LEAST_PART_BYTES", ROW_BYTES)
    draw = random.Random(1)
    sources = [(ctypes.c_char * size).from_buffer_copy(draw.randbytes(size)) for size in sizes]
    pieces: list[Piece] = []
    at = 0
    for source in sources:
        pieces.append(Piece(at, ctypes.addressof(source), len(source)))
        at += -(-len(source) // 64) * 64
    middle = pieces[len(pieces) // 2].start
    regions = [Region(0, middle), Region(middle, at - middle)]
    memory = mmap.mmap(-1, at)
    with memoryview(memory) as data:
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        found = copy_and_sum(data, address, pieces, regions, threads)
        for piece, source in zip(pieces, sources, strict=True):
            assert data[piece.start : piece.start + piece.nbytes] == source.raw
        assert [region.digest for region in found] == [
            checksum(data[region.start : region.start + region.nbytes]) for region in regions
        ]
    memory.close()


def test_bytes_in_place_count_without_a_piece() -> None:
    memory = mmap.mmap(-1, 4096)
    memory[:4096] = random.Random(2).randbytes(4096)
    source = ctypes.create_string_buffer(b"x" * 10, 10)
    with memoryview(memory) as data:
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        (found,) = copy_and_sum(data, address, [Piece(64, ctypes.addressof(source), 10)], [Region(0, 4096)])
        assert found.digest == checksum(data) and bytes(data[64:74]) == b"x" * 10
    memory.close()
