"""Copies of boxes between memory files, without a loop in Python over their rows."""

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from regroup.workers.state.slices.boxes import Region

Copy = tuple[memoryview, Region, memoryview, Region]
"""Source, its bytes, target, and their position there."""


def copy_regions(copies: Iterable[Copy]) -> None:
    """Copy bytes between memories. Both regions of a copy are of the same box. Run this in a thread: it waits for
    memory and does not hold the interpreter's lock meanwhile."""
    for source, out_of, target, into in copies:
        copy_region(source, out_of, target, into)


def copy_region(source: memoryview, out_of: Region, target: memoryview, into: Region) -> None:
    """Copy the bytes of one region to another one of the same box.

    Raises:
        ValueError: A region does not lie in its memory.
    """
    if not (size_bytes := out_of.size_bytes):
        return
    if out_of.end > len(source) or into.end > len(target) or size_bytes != into.size_bytes:
        raise ValueError(f"{out_of} of {len(source)} bytes does not fit {into} of {len(target)} bytes")
    bounds = sorted({*_bounds(out_of), *_bounds(into)})
    strides = [_strides(region, bounds) for region in (out_of, into)]
    width = math.gcd(8, bounds[0], out_of.offset, into.offset, *strides[0], *strides[1])
    shape = [after // before for before, after in reversed(list(itertools.pairwise(bounds)))]
    shape.append(bounds[0] // width)
    item = np.dtype(f"u{width}")
    views = [
        np.ndarray(shape, item, memory, region.offset, [*reversed(steps), width])
        for memory, region, steps in ((source, out_of, strides[0]), (target, into, strides[1]))
    ]
    np.copyto(views[1], views[0])


def _bounds(region: Region) -> list[int]:
    """Return the number of bytes that each level and all levels below it have, innermost first."""
    found = [region.run_bytes]
    for count in reversed(region.counts):
        found.append(found[-1] * count)
    return found


def _strides(region: Region, bounds: Sequence[int]) -> list[int]:
    """Return the distance of repetitions at each of `bounds`, innermost first, which include the region's own."""
    own, steps = _bounds(region), [1, *reversed(region.strides_bytes)]
    sizes = [1, *own]
    found: list[int] = []
    level = 0
    for bound in bounds[:-1]:
        while bound >= own[level]:
            level += 1
        found.append(steps[level] * (bound // sizes[level]))
    return found
