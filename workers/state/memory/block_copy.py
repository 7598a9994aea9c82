"""Copy a state into the data of a snapshot, and sum each block while it is in the cache. Imports neither torch nor ray.

A second pass over the snapshot for its checksum would cost as much as the copy, because both wait for the memory.
"""

import ctypes
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from regroup.workers.state.memory.checksum import BLOCK_BYTES, ROW_BYTES, Fold, joined
from regroup.workers.state.memory.checksum_regions import Region, summed
from regroup.workers.state.memory.copy_threads import run_parts, split


class Piece(NamedTuple):
    """Consecutive bytes of the state, and their place in the data."""

    start: int
    """Offset of the first byte in the data."""
    source: int
    """Address of the first byte."""
    nbytes: int


def copy_and_sum(
    data: memoryview, address: int, pieces: Sequence[Piece], regions: Sequence[Region], threads: int = 1
) -> list[Region]:
    """Copy all pieces and return the regions with the checksums of their data.

    Args:
        data: data of a snapshot. Bytes that no piece covers are in place.
        address: address of its first byte.
        pieces: pieces of the state, in the order of `start`.
        regions: regions of the data.
        threads: most threads to use.
    """
    copier = _BlockCopier(data, address, pieces)
    found: list[Region] = []
    for region in regions:
        parts = [
            (region.start + first, region.start + last) for first, last in split(region.nbytes, ROW_BYTES, threads)
        ]
        found.append(summed(region, joined(run_parts(parts, copier.copy)).checksum()))
    return found


class _BlockCopier:
    def __init__(self, data: memoryview, address: int, pieces: Sequence[Piece]) -> None:
        self._data, self._address, self._pieces = data, address, pieces
        self._ends = [piece.start + piece.nbytes for piece in pieces]

    def copy(self, first: int, last: int) -> Fold:
        """Copy bytes `first` to `last` of the data, block by block, and return their fold."""
        fold, number = Fold(), bisect_right(self._ends, first)
        while first < last:
            until = min(first + BLOCK_BYTES, last)
            number = self._copy_block(number, first, until)
            with self._data[first:until] as block:
                fold.add(block)
            first = until
        return fold

    def _copy_block(self, number: int, first: int, until: int) -> int:
        """Copy the pieces in one block from piece `number` on. Return the first piece that goes beyond the block."""
        while number < len(self._pieces):
            start, source, nbytes = self._pieces[number]
            begin, end = max(start, first), min(start + nbytes, until)
            if begin < end:
                ctypes.memmove(self._address + begin, source + begin - start, end - begin)
            if start + nbytes > until:
                break
            number += 1
        return number
