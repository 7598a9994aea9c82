"""Checksum of a snapshot, fast enough for every step of a job. Imports neither torch nor ray.

It XORs the 64-bit words of a snapshot at a distance of 8,191 words and takes the CRC-32 of the result. Any flipped bit
changes the checksum. A stale or swapped page of memory changes it too: the distance is a prime, so no page of 512 words
shares its columns with another page of the same 32 MB.

XOR does not depend on the order, so several threads can fold parts of the data, each as soon as it was copied.
"""

import functools
import operator
import zlib
from collections.abc import Sequence
from typing import Any

from regroup.workers.state.memory.copy_threads import run_parts, split

try:
    import numpy as np
except ModuleNotFoundError:  # a job's own interpreter may have torch and no numpy
    np = None

_WORDS = 8191
ROW_BYTES = 8 * _WORDS
"""Bytes between two words that meet in the fold."""
BLOCK_BYTES = 16 * ROW_BYTES
"""Bytes that a copy and its fold process at once: they fit a cache of the processor."""


class Fold:
    """XOR of the rows of some data, of which each part begins at a row."""

    def __init__(self) -> None:
        """Start with no data."""
        self._words: Any = np.zeros(_WORDS, dtype="<u8") if np is not None else 0

    def add(self, data: memoryview) -> None:
        """Add a part. Its last row is padded with zeros."""
        if np is None:
            self._words ^= int.from_bytes(fold_slowly(data), "little")
            return
        whole = len(data) // ROW_BYTES * ROW_BYTES
        if whole:
            words = np.frombuffer(data[:whole], dtype="<u8").reshape(-1, _WORDS)
            np.bitwise_xor(self._words, np.bitwise_xor.reduce(words, axis=0), out=self._words)
        if whole < len(data):
            last = np.zeros(_WORDS, dtype="<u8")
            last.view(np.uint8)[: len(data) - whole] = np.frombuffer(data[whole:], dtype=np.uint8)
            np.bitwise_xor(self._words, last, out=self._words)

    def merge(self, other: "Fold") -> None:
        """Add the parts of another fold of the same data."""
        self._words = self._words ^ other._words

    def checksum(self) -> int:
        """Return the CRC-32 of the folded words."""
        return zlib.crc32(self._words.to_bytes(ROW_BYTES, "little") if np is None else self._words)


def checksum(data: memoryview, threads: int = 1) -> int:
    """Return the CRC-32 of the folded words of `data`, padded with zeros.

    Args:
        data: bytes to read.
        threads: most threads to use. Small data is read by one.
    """

    def part(first: int, last: int) -> Fold:
        fold = Fold()
        with data[first:last] as some:
            fold.add(some)
        return fold

    return joined(run_parts(split(len(data), ROW_BYTES, threads), part)).checksum()


def joined(folds: Sequence[Fold]) -> Fold:
    """Return the fold of all parts of some data."""
    whole = Fold()
    for fold in folds:
        whole.merge(fold)
    return whole


def fold_slowly(data: memoryview) -> bytes:
    """Fold without numpy, at a twentieth of the speed."""
    pieces = (int.from_bytes(data[at : at + ROW_BYTES], "little") for at in range(0, len(data), ROW_BYTES))
    return functools.reduce(operator.xor, pieces, 0).to_bytes(ROW_BYTES, "little")
