"""Explanation of a job that waits, failed or is slow, on one screen. Pure: renders the server's answer as lines."""

from collections.abc import Mapping, Sequence
from typing import Any

from regroup.api.live.formatting import duration
from regroup.api.live.job_view import TERMINAL, ended_text, steps_lost_text
from regroup.api.live.predictions import format_seconds
from regroup.api.schemas.capacity.size_starts import SizeStart

_TRACEBACK_LINES = 25
_INCIDENTS_SHOWN = 5
_STACKS_SHOWN = 2
_FRAMES_SHOWN = 8


def render_why(why: Mapping[str, Any]) -> list[str]:
    """Return lines: the answer first, then the evidence, then the advice."""
    lines = [str(why["summary"])]
    lines += [_condition(condition) for condition in why["conditions"]]
    lines += _choice(why.get("choice") or {})
    lines += [f"  host memory: {memory}"] if (memory := why.get("host_memory")) else []
    lines += _error(why["error"] or {})
    lines += _incidents(why)
    lines += _time(why)
    return lines + [f"→ {advice}" for advice in why["advice"]]


def render_starts(starts: Sequence[SizeStart], now_s: float) -> list[tuple[str, ...]]:
    """Return the rows of a table: size, whether the spec permits it, start, confidence and its reason."""
    return [(str(each.ranks), _permitted(each), _start(each, now_s), each.confidence, each.basis) for each in starts]


def _permitted(each: SizeStart) -> str:
    return "requested" if each.is_requested else "permitted" if each.is_legal else "not permitted"


def _start(each: SizeStart, now_s: float) -> str:
    if each.is_now:
        return "now"
    return "after a week" if each.start_s is None else f"in {duration(max(1.0, each.start_s - now_s))}"


def _time(why: Mapping[str, Any]) -> list[str]:
    """Return the time spent, largest part first, with the goodput if it is available."""
    goodput = why["goodput"]
    spent = sorted(((kind, value) for kind, value in why["seconds"].items() if value > 0), key=lambda item: -item[1])
    if not spent:
        return []
    unknown = "time" if why["state"] in TERMINAL else "so far"
    share = unknown if goodput is None else f"goodput {goodput:.0%}"
    return [f"  {share}: {', '.join(f'{kind} {duration(value)}' for kind, value in spent)}"]


def _condition(condition: Mapping[str, Any]) -> str:
    return f"  {'✓' if condition['status'] else '✖'} {condition['type']}: {condition['message'] or condition['reason']}"


def _choice(choice: Mapping[str, Any]) -> list[str]:
    """Describe the placement and the reasons for it."""
    if not choice:
        return []
    lines = [f"  placed in {choice['inside']}"]
    if choice["axes"] and choice.get("probe_job_id") is None:
        scopes = ", ".join(f"{axis['name']} {_axis_scope(axis)}" for axis in choice["axes"])
        lines[0] += f": {scopes}"
    elif choice["axes"]:
        parts = ", ".join(
            f"{axis['name']} {format_seconds(axis['seconds'])} {_axis_scope(axis)}" for axis in choice["axes"]
        )
        lines[0] += f": predicted communication {format_seconds(choice['communication_s'])} per step ({parts})"
    return lines + [f"    not {each['what']}: {each['why']}" for each in choice["rejected"]]


def _axis_scope(axis: Mapping[str, Any]) -> str:
    return "within nodes" if axis["leaves"] == "device" else f"between {axis['leaves']}s"


def _error(error: Mapping[str, Any]) -> list[str]:
    if not error:
        return []
    where = ", ".join(f"{name} {error[name]}" for name in ("rank", "step", "phase") if error.get(name) is not None)
    lines = [f"  {error.get('kind', 'error')}: {error.get('message', '')}" + (f" ({where})" if where else "")]
    traceback = str(error.get("traceback") or "").splitlines()
    if len(traceback) > _TRACEBACK_LINES:
        left_out = f"… {len(traceback) - _TRACEBACK_LINES} more lines with --json"
        traceback = [left_out, *traceback[-_TRACEBACK_LINES:]]
    return lines + ["    " + line for line in traceback]


def _cost(why: Mapping[str, Any]) -> str:
    """Describe the total cost of the incidents."""
    took = "" if why["mean_recovery_s"] is None else f", mean recovery time {duration(why['mean_recovery_s'])}"
    lost = ", ".join(f"{steps_lost_text(count)} to {cause}" for cause, count in why["steps_lost"].items() if count)
    return f"{took}{', ' if lost else ''}{lost}"


def _incidents(why: Mapping[str, Any]) -> list[str]:
    job, incidents = why["id"], why["incidents"]
    if not incidents:
        return []
    lines = [f"  {len(incidents)} incident{'' if len(incidents) == 1 else 's'}{_cost(why)}"]
    for each in incidents[-_INCIDENTS_SHOWN:]:
        back = _describe_recovery(each)
        rank = each.get("rank")
        who = "" if rank is None or f"rank {rank}" in each["cause"] else f" of rank {rank}"
        lines.append(f"    {each['cause']}{who} after step {each.get('at_step')}: {back}")
    newest = incidents[-1]
    lines += _stacks(newest.get("evidence") or {})
    if newest.get("evidence_bytes"):
        lines.append(f"    all evidence: regroup evidence {job} {newest['number']}")
    return lines


def _describe_recovery(incident: Mapping[str, Any]) -> str:
    durations, times = incident.get("durations") or {}, incident.get("times") or {}
    if (total := durations.get("total")) is not None:
        return f"recovered in {duration(total)}, {steps_lost_text(incident.get('steps_lost'))}"
    if times.get("ended_s") is None:
        return "not recovered yet"
    formed_s = times.get("formed_s")
    return ended_text(None if formed_s is None else formed_s - times["fault_s"])


def _stacks(evidence: Mapping[str, Any]) -> list[str]:
    """Show the main thread's stack of the outlier ranks of a hang, or of the first rank if there are none."""
    ranks = evidence.get("ranks") or {}
    shown = [str(rank) for rank in evidence.get("outlier_ranks") or ()] or sorted(ranks)[:1]
    lines: list[str] = []
    for rank in shown[:_STACKS_SHOWN]:
        at = ranks[rank]
        frames = [line for line in str(at["stack"]).rpartition("hread 0x")[2].splitlines() if "File " in line]
        lines.append(f"    rank {rank} on {at['node']}, step {at['step']}, {at['phase']}, newest call first:")
        lines += ["    " + line for line in frames[:_FRAMES_SHOWN]] or [f"      {at['stack']}"]
    return lines
