"""Curves of metrics as a table: a line for each point."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regroup.api.schemas.history import Curves


def render_curves(found: "Curves") -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the header and the rows of a table. Metrics without a value are left out."""
    shown = [curve for curve in found.curves if curve.committed.steps]
    values = {curve.metric: dict(zip(curve.committed.steps, curve.committed.mean, strict=True)) for curve in shown}
    steps = sorted({step for curve in shown for step in curve.committed.steps})
    header = ("STEP", *(name.upper() for name in values))
    return header, [(str(step), *(_format(column.get(step)) for column in values.values())) for step in steps]


def _format(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
