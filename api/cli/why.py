"""Why a job is pending, failed or slow, on one screen. Pure: from the job and its incidents as plain data."""

from collections.abc import Mapping, Sequence
from typing import Any

from regroup.api.cli.text import ago, duration, layout_text, number
from regroup.api.cli.view import TERMINAL

_TRACEBACK_LINES = 25
_INCIDENTS_SHOWN = 5
_GOOD = 0.9
"""Goodput below which a running job is worth explaining."""


def explain(job: Mapping[str, Any], incidents: Sequence[Mapping[str, Any]], *, now_s: float) -> list[str]:
    """Lines, the answer first, then what it rests on, then what to do."""
    state = str(job["state"])
    lines = [_answer(job, state, now_s)]
    if state in ("QUEUED", "SUSPENDED"):
        lines += _conditions(job)
    elif state == "FAILED":
        lines += _error(job.get("error") or {})
    elif state in ("PLACING", "STARTING") and job.get("phase"):
        lines.append(f"  busy with: {_phase(job['phase'])}")
    elif state not in TERMINAL:
        lines += _speed(job)
        lines += _conditions(job)
    lines += _incidents(incidents)
    lines += _next(job, state)
    return lines


def _answer(job: Mapping[str, Any], state: str, now_s: float) -> str:
    since = job.get("finished_at") if state in TERMINAL else job.get("started_at") or job.get("queued_at")
    message = f": {job['message']}" if job.get("message") else ""
    reason = job.get("reason") or "no reason given"
    return f"{job['name']} ({job['id']}) is {state}, {reason}, {ago(since, now_s)}{message}"


def _conditions(job: Mapping[str, Any]) -> list[str]:
    marks = {True: "✓", False: "✖"}
    return [
        f"  {marks[bool(c['status'])]} {c['type']}: {c['message'] or c['reason']}" for c in job.get("conditions") or ()
    ]


def _error(error: Mapping[str, Any]) -> list[str]:
    if not error:
        return []
    where = ", ".join(f"{name} {error[name]}" for name in ("rank", "step", "phase") if error.get(name) is not None)
    lines = [f"  {error.get('kind', 'error')}: {error.get('message', '')}" + (f" ({where})" if where else "")]
    traceback = str(error.get("traceback") or "").splitlines()
    if len(traceback) > _TRACEBACK_LINES:
        traceback = [
            f"… {len(traceback) - _TRACEBACK_LINES} lines more: regroup get --json",
            *traceback[-_TRACEBACK_LINES:],
        ]
    return lines + ["    " + line for line in traceback]


def _phase(phase: Mapping[str, Any]) -> str:
    fraction = phase.get("fraction")
    done = "" if fraction is None else f" {fraction:.0%}"
    return f"{phase.get('phase', '?')}{done} {phase.get('message') or ''}".strip()


def _speed(job: Mapping[str, Any]) -> list[str]:
    facts = [f"step {job.get('step', 0)} of {job.get('steps', '?')}"]
    if job.get("step_duration_s"):
        facts.append(f"{duration(job['step_duration_s'])} a step")
    if job.get("tokens_per_s"):
        facts.append(f"{number(job['tokens_per_s'])} tokens/s")
    if job.get("layout"):
        facts.append(layout_text(job["layout"]))
    lines = ["  " + " · ".join(facts)]
    goodput = job.get("goodput")
    if goodput is not None:
        verdict = "" if goodput >= _GOOD else ": the rest went to starting and recovering"
        lines.append(f"  goodput {goodput:.0%}{verdict}")
    return lines


def _incidents(incidents: Sequence[Mapping[str, Any]]) -> list[str]:
    if not incidents:
        return []
    lines = [f"  {len(incidents)} incident{'' if len(incidents) == 1 else 's'}"]
    for each in incidents[-_INCIDENTS_SHOWN:]:
        total = (each.get("durations") or {}).get("total")
        outcome = (
            f"back in {duration(total)}, {each.get('steps_lost') or 0} lost" if total is not None else "not back yet"
        )
        who = "" if each.get("rank") is None else f" of rank {each['rank']}"
        lines.append(f"    {each.get('cause')}{who} after step {each.get('at_step')}: {outcome}")
    return lines


def _next(job: Mapping[str, Any], state: str) -> list[str]:
    advice = {
        "user_error": f"the code raised: regroup logs {job['id']} --rank {(job.get('error') or {}).get('rank') or 0}",
        "invalid_input": "mend what the message names and submit again",
        "budget_exhausted": f"it keeps failing: regroup events {job['id']}; see spec.recovery.budgets",
        "max_queue_time": "raise max_queue_time, ask for fewer ranks, or free the cluster: regroup ls",
        "max_duration": "raise max_duration; resume with resume_from: " + f"{job['id']}@latest",
        "platform_error": "this is a fault of regroup: please report it with `regroup get --json`",
    }
    if state == "FAILED" and job.get("reason") in advice:
        return [f"→ {advice[str(job['reason'])]}"]
    return []
