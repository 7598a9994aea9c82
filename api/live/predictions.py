"""Formatting of predictions with the measured values, for people. Pure."""

from collections.abc import Mapping
from typing import Any

from regroup.api.live.formatting import duration, size

FIGURES: Mapping[str, str] = {"step_s": "step", "peak_bytes": "memory", "bubble": "bubble"}
"""Field of a prediction → label."""


def format_cells(prediction: Mapping[str, Any]) -> list[str]:
    """Format each value as `0.52 s, 0.48 s predicted (-8 %)`."""
    return [_cell(prediction, name) for name in FIGURES]


def format_comparisons(prediction: Mapping[str, Any]) -> list[str]:
    """Format each value that was both predicted and measured as `step 0.52 s, 0.48 s predicted (-8 %)`."""
    found = [name for name in FIGURES if prediction["measured"].get(name) is not None]
    return [f"{FIGURES[name]} {_cell(prediction, name)}" for name in found if prediction["predicted"][name] is not None]


def _cell(prediction: Mapping[str, Any], name: str) -> str:
    predicted, found, error = (prediction[part].get(name) for part in ("predicted", "measured", "relative_error"))
    if predicted is None:
        return "-" if found is None else _text(name, found)
    if found is None:
        return f"{_text(name, predicted)} predicted"
    return f"{_text(name, found)}, {_text(name, predicted)} predicted" + ("" if error is None else f" ({error:+.0%})")


def _text(name: str, value: float) -> str:
    if name == "step_s":
        return f"{value:.3g} s" if value < 60 else duration(value)
    return size(value) if name == "peak_bytes" else f"{value:.0%}"
