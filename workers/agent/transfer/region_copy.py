"""Copies of regions between memories. numpy copies without the interpreter's lock."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from regroup.workers.agent.transfer.presence import prefault
from regroup.workers.state.slices.boxes import Region

_WORD_BYTES = 8
"""Largest unit of a copy."""


def gather(memory: memoryview, regions: Sequence[Region], packed: memoryview) -> None:
    """Copy regions of `memory` to `packed`, one after the other.

    Raises:
        ValueError: a region is not within `memory`.
    """
    at = 0
    for region in regions:
        copy(memory, region, packed, Region(at, region.size_bytes))
        at += region.size_bytes


def scatter(packed: memoryview, memory: memoryview, regions: Sequence[Region]) -> None:
    """Copy `packed` to regions of `memory`, one after the other.

    Raises:
        ValueError: a region is not within `memory`.
    """
    at = 0
    for region in regions:
        copy(packed, Region(at, region.size_bytes), memory, region)
        at += region.size_bytes


Copy = tuple[memoryview, Region, memoryview, Region]
"""Source, the region to read, target, and the region to write."""


def copy_all(copies: Iterable[Copy]) -> None:
    """Copy regions of mapped memory, one after the other.

    Raises:
        ValueError: regions differ in size, or one is not within its memory.
    """
    for source, read, target, written in copies:
        with source[read.offset : read.end] as some, target[written.offset : written.end] as place:
            prefault(some)
            prefault(place, is_written=True)
        copy(source, read, target, written)


def copy(source: memoryview, read: Region, target: memoryview, written: Region) -> None:
    """Copy one region to another one with as many bytes.

    Raises:
        ValueError: the regions differ in size, or one is not within its memory.
    """
    if read.size_bytes != written.size_bytes:
        raise ValueError(f"cannot copy {read.size_bytes} bytes to a region of {written.size_bytes} bytes")
    if not read.size_bytes:
        return
    bounds = sorted({*_bounds(read), *_bounds(written)})
    if any(after % before for before, after in pairwise(bounds)):  # regions of different boxes
        packed = memoryview(bytearray(read.size_bytes))
        copy(source, read, packed, Region(0, read.size_bytes))
        copy(packed, Region(0, read.size_bytes), target, written)
        return
    out_of, into = _strides(read, bounds), _strides(written, bounds)
    word = math.gcd(_WORD_BYTES, bounds[0], read.offset, written.offset, *out_of, *into)
    shape = [after // before for before, after in pairwise(bounds)][::-1]
    values, place = (
        np.ndarray([*shape, bounds[0] // word], f"<u{word}", memory, region.offset, [*strides[::-1], word])
        for memory, region, strides in ((source, read, out_of), (target, written, into))
    )
    np.copyto(place, values)


def _bounds(region: Region) -> list[int]:
    """Return the number of bytes that each level has with all levels in it, innermost first."""
    found = [region.run_bytes]
    for count in reversed(region.counts):
        found.append(found[-1] * count)
    return found


def _strides(region: Region, bounds: Sequence[int]) -> list[int]:
    """Return the distance of repetitions at each of `bounds`, innermost first, which include the region's own."""
    sizes, steps = [1, *_bounds(region)], [1, *reversed(region.strides_bytes)]
    found: list[int] = []
    level = 0
    for bound in bounds[:-1]:
        while bound >= sizes[level + 1]:
            level += 1
        found.append(steps[level] * (bound // sizes[level]))
    return found
