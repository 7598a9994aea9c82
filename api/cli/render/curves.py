"""Curves of metrics as a table: a line for each point of one job, or for each metric of several jobs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regroup.api.schemas.comparison.job_curves import JobCurves
    from regroup.api.schemas.history import Curves

_BLOCKS = "▁▂▃▄▅▆▇█"


def render_curves(found: "Curves") -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the header and the rows of a table. Metrics without a value are left out."""
    shown = [curve for curve in found.curves if curve.committed.steps]
    values = {curve.metric: dict(zip(curve.committed.steps, curve.committed.mean, strict=True)) for curve in shown}
    steps = sorted({step for curve in shown for step in curve.committed.steps})
    header = ("STEP", *(name.upper() for name in values))
    return header, [(str(step), *(_format(column.get(step)) for column in values.values())) for step in steps]


def render_short_curves(found: "JobCurves") -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the header and the rows of a table: a line for each metric of each job."""
    rows = list[tuple[str, ...]]()
    for each in found.jobs:
        for metric, values in each.values.items():
            numbers = [value for value in values if value is not None]
            ends = [_format(value) for value in (numbers[0], numbers[-1], min(numbers))] if numbers else ["-"] * 3
            rows.append((each.name, metric, str(each.steps[-1]) if each.steps else "-", *ends, draw_bars(numbers)))
    return ("JOB", "METRIC", "STEP", "FIRST", "LAST", "SMALLEST", "CURVE"), rows


def draw_bars(values: Sequence[float]) -> str:
    """Return one block for each value: the smallest value is the lowest block."""
    if not values:
        return ""
    low, high = min(values), max(values)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BLOCKS[round((value - low) * scale)] for value in values)


def _format(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
