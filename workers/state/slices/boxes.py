"""Boxes of a global tensor, and the bytes that a box occupies in a larger box. Imports neither torch nor ray."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a global tensor: first element and extent in each dimension."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    def intersect(self, other: "Box") -> "Box | None":
        """Return the common part of two boxes, or None if they have no value in common."""
        offset: list[int] = []
        shape: list[int] = []
        for a, m, b, n in zip(self.offset, self.shape, other.offset, other.shape, strict=True):
            first = a if a > b else b
            extent = min(a + m, b + n) - first
            if extent <= 0:
                return None
            offset.append(first)
            shape.append(extent)
        return Box(tuple(offset), tuple(shape))

    def subtract(self, part: "Box") -> list["Box"]:
        """Return disjoint boxes that cover this box without `part`, which is inside it."""
        rest: list[Box] = []
        offset, shape = list(self.offset), list(self.shape)
        for axis, (first, extent) in enumerate(zip(part.offset, part.shape, strict=True)):
            before, after = first - offset[axis], offset[axis] + shape[axis] - first - extent
            if before:
                rest.append(Box(tuple(offset), (*shape[:axis], before, *shape[axis + 1 :])))
            if after:
                rest.append(
                    Box(
                        (*offset[:axis], first + extent, *offset[axis + 1 :]),
                        (*shape[:axis], after, *shape[axis + 1 :]),
                    )
                )
            offset[axis], shape[axis] = first, extent
        return rest

    def split(self, most: int) -> Iterator["Box"]:
        """Return boxes of at most `most` values (at least one) that cover this box, in row-major order."""
        if self.size <= max(1, most):
            yield self
            return
        axis = next(axis for axis, extent in enumerate(self.shape) if extent > 1)
        row = self.size // self.shape[axis]
        rows = max(1, most // row)
        first, extent = self.offset[axis], self.shape[axis]
        for start in range(0, extent, rows):
            slab = Box(
                (*self.offset[:axis], first + start, *self.offset[axis + 1 :]),
                (*self.shape[:axis], min(rows, extent - start), *self.shape[axis + 1 :]),
            )
            yield from slab.split(most)


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes of a box in a file: runs of equal length at regular distances.

    The bytes of two regions of the same box have the same order.
    """

    offset: int
    """First byte in the file."""
    run_bytes: int
    """Length of one run without a gap."""
    counts: tuple[int, ...] = ()
    """Number of repetitions at each level, outermost first; empty for a single run."""
    strides_bytes: tuple[int, ...] = ()
    """Distance of the repetitions at each level."""

    @property
    def size_bytes(self) -> int:
        """Number of bytes, without the gaps."""
        return math.prod(self.counts) * self.run_bytes

    @property
    def end(self) -> int:
        """First byte after the region; its offset if it is empty."""
        if not self.size_bytes:
            return self.offset
        last = sum((count - 1) * stride for count, stride in zip(self.counts, self.strides_bytes, strict=True))
        return self.offset + last + self.run_bytes

    def shifted(self, by_bytes: int) -> "Region":
        """Return this region at another position in the file."""
        return replace(self, offset=self.offset + by_bytes)

    def split(self, most_span_bytes: int) -> Iterator["Region"]:
        """Return regions with the same bytes in their order, each a single run or of at most this span."""
        if not self.counts or self.end - self.offset <= most_span_bytes:
            yield self
            return
        count, stride = self.counts[0], self.strides_bytes[0]
        inner = Region(self.offset, self.run_bytes, self.counts[1:], self.strides_bytes[1:])
        fitting = 1 + (most_span_bytes - (inner.end - inner.offset)) // stride
        for first in range(0, count, max(1, fitting)):
            part = inner.shifted(first * stride)
            if (repeated := min(fitting, count - first)) > 1:
                yield replace(part, counts=(repeated, *part.counts), strides_bytes=self.strides_bytes)
            else:
                yield from part.split(most_span_bytes)


def region_of(part: Box, whole: Box, item_bytes: int) -> Region:
    """Return the bytes of `part` in a file that starts with the values of `whole`, which are in row-major order."""
    offset, run, stride = 0, item_bytes, item_bytes
    levels: list[tuple[int, int]] = []  # innermost first
    for axis in reversed(range(len(whole.shape))):
        extent = part.shape[axis]
        offset += (part.offset[axis] - whole.offset[axis]) * stride
        if extent == 0:
            return Region(0, 0)
        if extent > 1:
            if not levels and stride == run:
                run *= extent
            elif levels and levels[-1][0] * levels[-1][1] == stride:
                levels[-1] = (levels[-1][0] * extent, levels[-1][1])
            else:
                levels.append((extent, stride))
        stride *= whole.shape[axis]
    levels.reverse()
    return Region(offset, run, tuple(count for count, _ in levels), tuple(stride for _, stride in levels))
