"""Formatting of numbers, layouts and times for people. Pure."""

import math
from collections.abc import Sequence

_SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def duration(seconds: float) -> str:
    """Format a duration: `20 ms`, `0.8 s`, `12 s`, `3 m 20 s`, `2 h 5 m`, `3 d 4 h`."""
    if seconds < 0:
        return "-" + duration(-seconds)
    if 0 < seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.995:
        return f"{seconds:.1f} s" if seconds else "0 s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    seconds = round(seconds)
    for size, unit, smaller, below in ((60, "m", "s", 3600), (3600, "h", "m", 86400), (86400, "d", "h", math.inf)):
        if seconds < below:
            whole, rest = divmod(seconds, size)
            part = rest // {"s": 1, "m": 60, "h": 3600}[smaller]
            return f"{whole} {unit} {part} {smaller}" if part else f"{whole} {unit}"
    raise AssertionError("the last row has no upper bound")


def ago(then_s: float | None, now_s: float) -> str:
    """Format the time since `then_s`, in Unix seconds: `3 m 20 s ago`, or `-` for None."""
    return "-" if then_s is None else f"{duration(max(0.0, now_s - then_s))} ago"


def number(value: float) -> str:
    """Format a number: `950`, `12.3k`, `1.24M`."""
    for scale, letter in _SCALES:
        if abs(value) >= scale:
            return f"{value / scale:.3g}{letter}"
    return f"{value:.3g}"


def layout_text(layout: dict[str, int]) -> str:
    """Format the degrees above one, e.g. `dp_shard=4`, or `1 rank` if there are none."""
    degrees = {name: degree for name, degree in layout.items() if name != "micro_batch" and degree > 1}
    split = " × ".join(f"{name}={degree}" for name, degree in degrees.items()) or "1 rank"
    return f"{split}, micro-batch {layout['micro_batch']}" if layout.get("micro_batch") else split


def size_text(layout: dict[str, int], workload: str) -> str:
    """Format the size of a job: `4 ranks` for code that divides its work itself, otherwise the degrees.

    Args:
        layout: the degrees.
        workload: kind of the job's workload.
    """
    ranks = math.prod(degree for name, degree in layout.items() if name not in ("micro_batch", "ep"))
    if workload in ("script", "ray_train"):
        return f"{ranks} rank{'' if ranks == 1 else 's'}"
    return layout_text(layout)


def ranges(numbers: Sequence[int]) -> str:
    """Format sorted numbers as ranges, e.g. `0-3,6`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
