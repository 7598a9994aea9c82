"""Fault plans for the rows of the faults benchmark, and figures from records. Pure functions."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from benchmarks.peers.workload import RANKS
from benchmarks.trials import stats
from regroup.service.chaos.fault_plan import NODE_LOSS_FAULTS, FaultPlan, PlannedFault, spaced_steps, spec_fault
from regroup.service.chaos.observation import InjectedFault, Record

_PHASES = ("forward", "backward", "optimizer")
_FIRST = 12
"""Steps before the first injection. By then, all one-time initialization has finished."""
_APART = {"rank_exit": 9, "hang": 9, "supervisor": 30, "node_loss": 110}
"""Steps between injections. The job has recovered and has its copies again before the next injection."""
OFTEN_MIRRORED = {"every_steps": 1, "mirror_share": 0.5}


def plan_of(row: str, injections: int, seed: int) -> FaultPlan:
    """Choose the steps and targets of a row's injections."""
    draw = Random(f"{row} {seed}")
    steps = _FIRST + _APART[row] * (injections + 1)
    at = spaced_steps(_FIRST, _APART[row], injections, draw)
    match row:
        case "rank_exit" | "hang":
            do = "sigkill" if row == "rank_exit" else "sigstop"
            faults = tuple(spec_fault(do, draw.randrange(RANKS), step, draw.choice(_PHASES)) for step in at)
            return FaultPlan(row, seed, steps, faults)
        case "supervisor":
            return FaultPlan(row, seed, steps, (), tuple(PlannedFault("kill_supervisor", step) for step in at))
        case _:
            kinds = [sorted(NODE_LOSS_FAULTS)[number % 2] for number in range(injections)]
            faults = tuple(PlannedFault(do, step, draw.randrange(2)) for do, step in zip(kinds, at, strict=True))
            return FaultPlan(row, seed, steps, (), faults, {"snapshot": OFTEN_MIRRORED})


def trials_of(row: str, record: Record) -> list[dict[str, Any]]:
    """Return one entry for each injection with an observed effect."""
    if row == "supervisor":
        return [
            {
                "at_step": fault.at_step,
                "readopt_s": fault.resumed_s - fault.time_s,
                "steps_lost": max((each["steps_lost"] or 0 for each in record.incidents), default=0),
            }
            for fault in record.injected
            if fault.resumed_s is not None
        ]
    incidents = [incident for incident in record.incidents if incident["times"].get("first_step_s") is not None]
    if row == "node_loss":
        seen = [(fault, _after(fault.time_s, incidents)) for fault in record.injected]
        return [_node_trial(record, fault, incident) for fault, incident in seen if incident is not None]
    return [_trial(record, incident, began_s=_began_s(row, record, incident)) for incident in incidents]


def figures_of(row: str, trials: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of a row by name: counts and percentiles."""

    def spread(key: str, prefix: str = "") -> dict[str, float]:
        values = [trial[key] for trial in trials]
        return {f"{prefix}p50_s": stats.median(values), f"{prefix}p95_s": stats.percentile(values, 95)}

    figures: dict[str, Any] = {"n": len(trials), "steps_lost_max": max(trial["steps_lost"] for trial in trials)}
    match row:
        case "rank_exit":
            return figures | spread("total_s") | spread("detect_s", "detect_")
        case "supervisor":
            return figures | spread("readopt_s", "readopt_")
        case _:
            return figures | spread("total_s", "total_") | spread("detect_s", "detect_")


def _began_s(row: str, record: Record, incident: Mapping[str, Any]) -> float:
    """Return the time of the fault, in Unix seconds.

    A rank stopped by SIGSTOP reports nothing. Its fault occurred, at the earliest, when the previous step was
    committed. A step that was repeated has the time of its repetition.
    """
    if row != "hang":
        return float(incident["times"]["fault_s"])
    before = [each["time_s"] for each in record.rows if each["time_s"] < incident["times"]["seen_s"]]
    return max(before, default=float(incident["times"]["fault_s"]))


def _after(time_s: float, incidents: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the first incident that was detected after `time_s`."""
    later = [each for each in incidents if each["times"]["seen_s"] > time_s]
    return min(later, key=lambda each: each["times"]["seen_s"], default=None)


def _node_trial(record: Record, fault: InjectedFault, incident: Mapping[str, Any]) -> dict[str, Any]:
    return {"do": fault.do, **_trial(record, incident, began_s=fault.time_s)}


def _trial(record: Record, incident: Mapping[str, Any], *, began_s: float) -> dict[str, Any]:
    new = [row["time_s"] for row in record.rows if row["step"] > incident["at_step"]]
    return {
        "at_step": incident["at_step"],
        "reason": incident["reason"],
        "recovery_action": incident["recovery_action"],
        "rank": incident["rank"],
        "detect_s": incident["times"]["seen_s"] - began_s,
        "first_step_s": incident["times"]["first_step_s"] - began_s,
        "total_s": min(new) - began_s,
        "steps_lost": incident["steps_lost"],
        "durations": dict(incident["durations"]),
    }
