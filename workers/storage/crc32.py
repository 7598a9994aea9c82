"""The CRC-32 of a file from those of its chunks, which are computed at the same time. Pure."""

from collections.abc import Sequence
from functools import lru_cache

_POLYNOMIAL = 0xEDB88320
_BITS = 32
_Matrix = tuple[int, ...]
"""Operator on the 32 bits of a checksum: the image of each bit."""


def combine(crcs: Sequence[int], sizes_bytes: Sequence[int]) -> int:
    """Return the CRC-32 of consecutive chunks from the CRC-32 and the size of each."""
    total = 0
    for crc, size in zip(crcs, sizes_bytes, strict=True):
        total = _applied(_after_zeros(size), total) ^ crc
    return total


@lru_cache(maxsize=64)
def _after_zeros(size_bytes: int) -> _Matrix:
    """Return the operator that appends this many zero bytes."""
    power = _squared(_squared(_squared(_one_zero_bit())))
    result = tuple(1 << bit for bit in range(_BITS))
    while size_bytes:
        if size_bytes & 1:
            result = tuple(_applied(power, column) for column in result)
        power, size_bytes = _squared(power), size_bytes >> 1
    return result


def _one_zero_bit() -> _Matrix:
    return (_POLYNOMIAL, *(1 << bit for bit in range(_BITS - 1)))


def _squared(matrix: _Matrix) -> _Matrix:
    return tuple(_applied(matrix, column) for column in matrix)


def _applied(matrix: _Matrix, vector: int) -> int:
    result, bit = 0, 0
    while vector:
        if vector & 1:
            result ^= matrix[bit]
        vector, bit = vector >> 1, bit + 1
    return result
