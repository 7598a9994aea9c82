"""Log lines for the changes between two views of a job, for use without a terminal. Pure."""

import math

from regroup.api.live.formatting import duration, number
from regroup.api.live.job_view import INCIDENT_PHASES, Incident, JobView, Step, step_text
from regroup.api.live.predictions import format_measured

_STEP_LINES = 20
"""Approximate number of step lines per run, in addition to the first, the last and those with a held-out loss."""


def describe_changes(before: JobView, after: JobView) -> list[str]:
    """Return lines for the changes in `after`: incidents first, then state, generation, steps, and the end last."""
    lines: list[str] = []
    printed_phases = {incident.id: incident for incident in before.incidents}
    for incident in after.incidents:
        lines += _incident(printed_phases.get(incident.id), incident)
    if after.state != before.state and not after.is_over:
        lines.append(_state(after))
    if after.activity and after.activity != before.activity:
        lines.append(f"{'waiting' if after.state == 'QUEUED' else 'starting'}: {after.activity}")
    if after.save and not before.save:
        lines.append(after.save)
    if after.generation != before.generation:
        lines += _generation(after)
    if after.checkpoint_step is not None and after.checkpoint_step != before.checkpoint_step:
        lines.append(f"checkpoint of step {after.checkpoint_step} saved")
    lines += [_step(step, after) for step in new_steps(before, after) if _is_printed(step, after.steps_total)]
    if after.is_over and (not before.is_over or not _figures(before)) and (figures := _figures(after)):
        lines.append(f"measured: {' · '.join(figures)}")
    if after.state != before.state and after.is_over:
        lines.append(_state(after))
        if after.error:
            lines.append(f"error {after.error.get('kind', '')}: {after.error.get('message', '')}")
    return lines


def _figures(view: JobView) -> list[str]:
    return [] if view.prediction is None else format_measured(view.prediction)


def _state(view: JobView) -> str:
    why = " · ".join(part for part in (view.reason, view.message) if part)
    return f"state {view.state}" + (f" ({why})" if why else "")


def new_steps(before: JobView, after: JobView) -> list[Step]:
    """Return the steps of `after` that are not in `before`."""
    last = before.steps[-1] if before.steps else None
    fresh: list[Step] = []
    for step in reversed(after.steps):
        if last is not None and (step.generation, step.step) <= (last.generation, last.step):
            break
        fresh.append(step)
    return fresh[::-1]


def _is_printed(step: Step, total: int | None) -> bool:
    if total is None:  # at decreasing frequency: 1, 2, …, 9, 10, 20, …, 90, 100, 200, …
        return step.step % 10 ** (len(str(step.step)) - 1) == 0
    every = max(1, math.ceil(total / _STEP_LINES))
    return step.step in (1, total) or step.step % every == 0 or step.validation_loss is not None


def _step(step: Step, view: JobView) -> str:
    parts = [step_text(step.step, view.steps_total, is_estimated=view.is_step_estimated)]
    if step.loss is not None:
        parts.append(f"loss {step.loss:.4f}")
    if step.validation_loss is not None:
        parts.append(f"held-out {step.validation_loss:.4f}")
    if view.tokens_per_s is not None:
        parts.append(f"{number(view.tokens_per_s)} tokens/s")
    return "  ".join(parts)


def _generation(view: JobView) -> list[str]:
    nodes = dict.fromkeys(rank.node for rank in view.ranks)
    board = "; ".join(f"{node}: ranks {', '.join(str(r.rank) for r in view.ranks if r.node == node)}" for node in nodes)
    return [f"generation {view.generation} · {view.size} · {board}"]


def _incident(before: Incident | None, after: Incident) -> list[str]:
    if not after.is_settled:
        return []
    printed = before if before and before.is_settled else None
    printed_phases = printed.times if printed else {}
    lines = [] if printed else [f"incident: {after.title}"]
    for word, key in INCIDENT_PHASES:
        at = after.elapsed(key)
        if key not in printed_phases and at is not None:
            lines.append(f"  {word} {duration(at)}")
    if after.is_over and not (printed and printed.is_over):
        lines.append(f"  {after.summary()}")
    return lines
