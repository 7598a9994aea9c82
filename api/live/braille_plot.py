"""A line plot in braille characters. Pure."""

import math
from collections.abc import Sequence

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of the dot at (row, column) of a braille cell."""

Point = tuple[float, float]


def plot(
    points: Sequence[Point],
    *,
    width: int,
    height: int,
    x_max: float | None = None,
    marks: Sequence[float] = (),
) -> list[str]:
    """Draw `points` (x ascending from 0) in `height` lines of `width` characters, including y labels.

    Args:
        x_max: right edge of the x axis; None for the last point's x.
        marks: x values at which a vertical bar is drawn.
    """
    label_width = 7
    columns = max(4, width - label_width)
    finite = [(x, y) for x, y in points if math.isfinite(y)]
    if not finite:
        return [" " * label_width + "·" * columns if row == height - 1 else "" for row in range(height)]
    low, high = min(y for _, y in finite), max(y for _, y in finite)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    right = max(x_max or 0.0, finite[-1][0], 1e-9)

    cells = [[0] * columns for _ in range(height)]
    previous: tuple[int, int] | None = None
    for x, y in finite:
        column = min(2 * columns - 1, int(x / right * (2 * columns - 1)))
        row = min(4 * height - 1, round((high - y) / (high - low) * (4 * height - 1)))
        for each_column, each_row in _segment(previous or (column, row), (column, row)):
            cells[each_row // 4][each_column // 2] |= _DOTS[each_row % 4][each_column % 2]
        previous = (column, row)

    bars = {min(columns - 1, int(mark / right * (columns - 0.5))) for mark in marks}
    lines: list[str] = []
    for index, row_cells in enumerate(cells):
        value = high - (high - low) * index / max(1, height - 1)
        labelled = index in (0, height // 2, height - 1)
        label = f"{value:{label_width - 1}.3g} " if labelled else " " * label_width
        drawn = [chr(0x2800 + bits) if bits else "┊" if i in bars else " " for i, bits in enumerate(row_cells)]
        lines.append((label + "".join(drawn)).rstrip())
    return lines


def _segment(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the dots of the straight line from `start` to `end`, both included."""
    count = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    return [
        (round(start[0] + (end[0] - start[0]) * i / count), round(start[1] + (end[1] - start[1]) * i / count))
        for i in range(count + 1)
    ]
