"""Copies of regions between memories. numpy copies without the interpreter's lock."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from regroup.workers.state.slices.boxes import Region

_WORDS = (8, 4, 2, 1)


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


def copy(source: memoryview, read: Region, target: memoryview, written: Region) -> None:
    """Copy one region to another one with as many bytes.

    Raises:
        ValueError: the regions differ in size, or one is not within its memory.
    """
    if read.size_bytes != written.size_bytes:
        raise ValueError(f"cannot copy {read.size_bytes} bytes to a region of {written.size_bytes} bytes")
    if not read.size_bytes:
        return
    if (read.counts, read.run_bytes) != (written.counts, written.run_bytes):
        if not read.counts:
            read = _shaped(read, written)
        elif not written.counts:
            written = _shaped(written, read)
        else:  # both are strided, each in its own way
            packed = memoryview(bytearray(read.size_bytes))
            copy(source, read, packed, Region(0, read.size_bytes))
            source, read = packed, _shaped(Region(0, read.size_bytes), written)
    word = _word_of(read, written)
    np.copyto(_view(target, written, word), _view(source, read, word))


def _shaped(run: Region, like: Region) -> Region:
    """Return a single run in the shape of another region."""
    strides, stride = list[int](), like.run_bytes
    for count in reversed(like.counts):
        strides.insert(0, stride)
        stride *= count
    return Region(run.offset, like.run_bytes, like.counts, tuple(strides))


def _word_of(*regions: Region) -> int:
    """Return the largest word that divides every position and length."""
    numbers = [number for region in regions for number in (region.offset, region.run_bytes, *region.strides_bytes)]
    return next(word for word in _WORDS if all(number % word == 0 for number in numbers))


def _view(memory: memoryview, region: Region, word: int) -> Any:
    shape = (*region.counts, region.run_bytes // word)
    return np.ndarray(shape, f"<u{word}", memory, region.offset, (*region.strides_bytes, word))
