"""Search for the boxes that overlap a box, without a check of all of them. Imports neither torch nor ray."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from regroup.workers.state.slices.boxes import Box


class BoxIndex:
    """Boxes with their owners, sorted along the axis on which they differ most."""

    def __init__(self, owners: Mapping[Box, Sequence[int]]) -> None:
        """Index the boxes that have values. All of them have the same number of dimensions."""
        boxes = [box for box in owners if box.size]
        axes = range(len(boxes[0].shape)) if boxes else ()
        self._axis = max(axes, key=lambda axis: len({box.offset[axis] for box in boxes}), default=-1)
        if self._axis >= 0:
            boxes.sort(key=lambda box: box.offset[self._axis])
        self._boxes = [(box, owners[box]) for box in boxes]
        self._firsts = [box.offset[self._axis] for box in boxes] if self._axis >= 0 else []
        ends = (box.offset[self._axis] + box.shape[self._axis] for box in boxes) if self._axis >= 0 else ()
        self._ends = list(accumulate(ends, max))
        """The largest end of the boxes so far."""

    def overlapping(self, box: Box) -> Iterator[tuple[Box, Box, Sequence[int]]]:
        """Return the common part, the whole box and its owners, for each box that overlaps this one."""
        start, stop = 0, len(self._boxes)
        if self._axis >= 0:
            first = box.offset[self._axis]
            start = bisect_right(self._ends, first)
            stop = bisect_left(self._firsts, first + box.shape[self._axis])
        for number in range(start, stop):
            whole, owners = self._boxes[number]
            if (common := box.intersect(whole)) is not None:
                yield common, whole, owners

    def cover(self, requested: Sequence[Box]) -> tuple[list[tuple[Box, Box, Sequence[int]]], list[Box]]:
        """Return disjoint parts of the requested boxes with the boxes that have them, and what no box has."""
        found: list[tuple[Box, Box, Sequence[int]]] = []
        rest: list[Box] = []
        open_parts = [box for box in requested if box.size]
        while open_parts:
            part = open_parts.pop()
            match = next(self.overlapping(part), None)
            if match is None:
                rest.append(part)
                continue
            found.append(match)
            open_parts += part.subtract(match[0])
        return found, rest
