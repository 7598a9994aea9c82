"""Order and hash of samples in pure Python, for an interpreter without numpy; `sampler.py` is faster."""

import hashlib
import math
import struct
from collections.abc import Iterable, Sequence

_ROUNDS = 6
_MASK = (1 << 64) - 1


def permute(indexes: Sequence[int], size: int, seed: int, epoch: int) -> list[int]:
    """Permute as `sampler.permute` does."""
    half = max(1, math.ceil((size - 1).bit_length() / 2))
    low = (1 << half) - 1
    keys = round_keys(seed, epoch)
    return [_walk(index, size, half, low, keys) for index in indexes]


def hash_of(samples: Iterable[tuple[int, int]]) -> int:
    """Hash (epoch, index) as `sampler.samples_hash_of` does."""
    return sum(_mix(_mix(epoch) ^ index) for epoch, index in samples) & _MASK


def round_keys(seed: int, epoch: int) -> tuple[int, ...]:
    """Return one 64-bit key for each round of the permutation of an epoch."""
    return struct.unpack("<8Q", hashlib.sha512(f"{seed}:{epoch}".encode()).digest())[:_ROUNDS]


def _walk(value: int, size: int, half: int, low: int, keys: Sequence[int]) -> int:
    while True:
        left, right = value >> half, value & low
        for key in keys:
            left, right = right, left ^ (_mix((right + key) & _MASK) & low)
        value = (left << half) | right
        if value < size:
            return value


def _mix(word: int) -> int:
    # The finaliser of SplitMix64 (Steele, Lea and Flood 2014), with its increment.
    word = (word + 0x9E3779B97F4A7C15) & _MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)
