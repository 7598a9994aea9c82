"""Summary of a job's steps. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from regroup.api.live.formatting import duration, number
from regroup.api.live.job_view import step_text
from regroup.api.live.predictions import format_seconds

HEADER = ("STEP", "GENERATION", "LOSS", "HELD-OUT", "TOKENS", "SECONDS", "LR")
SHOWN = 20
"""Largest number of rows of a summary."""
NEWEST = 100
"""Number of the newest steps from which rates are computed."""


def sampled_steps(total: int) -> list[int]:
    """Return the numbers of the steps that a summary of `total` steps shows: the first, the last, and some between."""
    if total <= SHOWN:
        return list(range(1, total + 1))
    return sorted({1 + round(index * (total - 1) / (SHOWN - 1)) for index in range(SHOWN)})


def summarize_steps(job: Mapping[str, Any], shown: Sequence[Any], newest: Sequence[Any]) -> list[str]:
    """Return lines about all steps of a job.

    Args:
        job: the job as the API describes it.
        shown: rows of `sampled_steps`.
        newest: the last `NEWEST` rows.
    """
    done = step_text(job["step"], job.get("steps"), is_estimated=bool(job.get("step_is_estimated")))
    lines = [f"{job['name']}: {done}, {job['state']}"]
    losses = [row for row in shown if row.loss is not None]
    if losses:
        first, last = losses[0], losses[-1]
        lines.append(f"loss {first.loss:.4g} at step {first.step}, {last.loss:.4g} at step {last.step}")
    held_out = next((row for row in reversed(newest) if row.validation_loss is not None), None)
    if held_out is not None:
        lines.append(f"held-out loss {held_out.validation_loss:.4g} at step {held_out.step}")
    durations = [row.duration_s for row in newest if row.duration_s]
    if durations:
        median_s = statistics.median(durations)
        tokens = [row.tokens for row in newest if row.tokens]
        speed = f", {number(statistics.median(tokens) / median_s)} tokens/s" if tokens else ""
        of = f"the last {len(durations)} steps" if len(durations) > 1 else "the last step"
        lines.append(f"{format_seconds(median_s)} per step (median of {of}){speed}")
    if (created := job.get("started_at")) is not None and (finished := job.get("finished_at")) is not None:
        lines.append(f"{duration(max(0.0, finished - created))} from start to end")
    return lines


def step_row(row: Any) -> tuple[str, ...]:
    """Return the cells of one step, below `HEADER`."""
    return (
        str(row.step),
        str(row.generation),
        _loss(row.loss),
        _loss(row.validation_loss),
        "-" if row.tokens is None else str(row.tokens),
        "-" if row.duration_s is None else f"{row.duration_s:.3g}",
        "-" if row.learning_rate is None else f"{row.learning_rate:.2e}",
    )


def _loss(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
