"""Formatting of predictions with the measured values, for people. Pure.

A prediction from values that a probe measured on this cluster is called one. Without a probe it is an estimate from the
hardware table: it is shown only in the answer to a request for a plan.
"""

from collections.abc import Mapping
from typing import Any

from regroup.api.live.formatting import duration
from regroup.service.domain.byte_text import bytes_text

FIGURES: Mapping[str, str] = {"step_s": "step", "peak_bytes": "memory", "bubble": "bubble"}
"""Field of a prediction → label."""


def is_probed(prediction: Mapping[str, Any]) -> bool:
    """Return True if the prediction is based on values that a probe measured."""
    return prediction.get("probe_job_id") is not None


def format_cells(prediction: Mapping[str, Any]) -> list[str]:
    """Format each value as `0.52 s, 0.48 s predicted (-8 %)`, or with `estimated` without a probe."""
    return [_cell(prediction, name) for name in FIGURES]


def format_measured(prediction: Mapping[str, Any]) -> list[str]:
    """Format each measured value: `step 0.52 s, 0.48 s predicted (-8 %)`, or `step 0.52 s` without a probe."""
    found = [name for name in FIGURES if prediction["measured"].get(name) is not None]
    if not is_probed(prediction):
        return [f"{FIGURES[name]} {_text(name, prediction['measured'][name])}" for name in found]
    return [f"{FIGURES[name]} {_cell(prediction, name)}" for name in found if prediction["predicted"][name] is not None]


def _cell(prediction: Mapping[str, Any], name: str) -> str:
    predicted, found, error = (prediction[part].get(name) for part in ("predicted", "measured", "relative_error"))
    if predicted is None:
        return "-" if found is None else _text(name, found)
    word = "predicted" if is_probed(prediction) else "estimated"
    if found is None:
        return f"{_text(name, predicted)} {word}"
    return f"{_text(name, found)}, {_text(name, predicted)} {word}" + ("" if error is None else f" ({error:+.0%})")


def _text(name: str, value: float) -> str:
    if name == "step_s":
        return format_seconds(value)
    return bytes_text(value) if name == "peak_bytes" else f"{value:.0%}"


def format_seconds(value: float) -> str:
    """Format the time of a step with three digits."""
    if value >= 60:
        return duration(value)
    return f"{value:.3g} s" if value >= 0.1 else f"{value * 1000:.3g} ms"
