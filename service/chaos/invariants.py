"""What must hold after any failure, whatever it was: I1–I8, each judged on the record of a struck job. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from regroup.service.chaos.observation import Record
from regroup.service.domain.states import TRANSITIONS, JobState

_SUM_WITHIN = 0.01
_ROUNDING_S = 0.05


@dataclass(frozen=True)
class Expected:
    """What one scenario must come to."""

    state: str = "SUCCEEDED"
    reason: str = "completed"
    incidents: tuple[frozenset[str], ...] = ()
    """For each incident in order the reasons that are right."""
    recovery_actions: frozenset[str] = frozenset({"respawn"})
    detect_s: float = 1.0
    """Most that may pass from an incident's fault until it is seen."""
    total_s: float = 10.0
    """And until its first step."""
    steps_lost: int = 1
    """Most that one incident may cost."""
    is_slow: bool = False
    """A rank is to be named as a straggler."""
    allows_more_incidents: bool = False
    """More incidents than are listed may follow, of the last one's reasons."""
    tolerance: float = 0.0
    """Relative, of each step's loss. Above 0 where other ranks do sums in another order: no bit need be equal then."""
    has_samples: bool = True
    """Its steps say which samples they saw. A script's do not: of its ledger the steps alone are judged."""


@dataclass(frozen=True)
class Finding:
    """One invariant as it was found."""

    invariant: str
    """`I1` to `I8`."""
    meaning: str
    problems: tuple[str, ...]
    """What contradicts it; empty if it holds."""

    @property
    def passed(self) -> bool:
        """Nothing contradicts it."""
        return not self.problems


def check_invariants(record: Record, control: Record, expected: Expected) -> tuple[Finding, ...]:
    """All eight, in order."""
    return tuple(
        Finding(name, meaning, tuple(check(record, control, expected))) for name, meaning, check in _INVARIANTS
    )


def _ledger(record: Record, control: Record, expected: Expected) -> Sequence[str]:
    problems: list[str] = []
    if expected.has_samples and not record.ledger["exact"]:
        problems.append(f"the ledger is not exact: {record.ledger['problems']}")
    if expected.state == "SUCCEEDED" and record.ledger["steps"] != control.ledger["steps"]:
        problems.append(f"{record.ledger['steps']} steps are in the ledger, {control.ledger['steps']} in the control's")
    steps = [row["step"] for row in record.rows]
    if steps != list(range(1, len(steps) + 1)):
        problems.append("the committed steps are not 1, 2, 3, …")
    return problems


def _digest(record: Record, control: Record, expected: Expected) -> Sequence[str]:
    if expected.state != "SUCCEEDED":
        return []
    ours, theirs = record.job["digest"], control.job["digest"]
    if not ours.get("parameters"):
        return ["there is no digest of the parameters"]
    keys = ("samples",) if expected.tolerance else ("parameters", "samples")
    wrong = [f"{key}: {ours[key]}, undisturbed {theirs[key]}" for key in keys if ours[key] != theirs[key]]
    return [*wrong, *_curve(record, control, expected.tolerance)]


def _curve(record: Record, control: Record, tolerance: float) -> Sequence[str]:
    undisturbed = {row["step"]: row["loss"] for row in control.rows}
    pairs = [(row["step"], row["loss"], undisturbed.get(row["step"])) for row in record.rows]
    off = [
        f"the loss of step {step} is {ours}, undisturbed {theirs}"
        for step, ours, theirs in pairs
        if ours != theirs and (ours is None or theirs is None or not math.isclose(ours, theirs, rel_tol=tolerance))
    ]
    return off[:1]


def _fence(record: Record, control: Record, expected: Expected) -> Sequence[str]:
    formed = {each["number"]: each for each in record.generations}
    problems: list[str] = []
    for row in record.rows:
        later = [each for number, each in formed.items() if number > row["generation"]]
        if any(each["start_step"] < row["step"] for each in later):
            problems.append(
                f"step {row['step']} counts for generation {row['generation']}, which was overtaken before it"
            )
        if any(each["time_s"] < row["time_s"] for each in later):
            problems.append(
                f"step {row['step']} was made by generation {row['generation']} after a later one was formed"
            )
    for each in record.generations:
        source = each["restore"]
        between = [other for number, other in formed.items() if source["generation"] < number < each["number"]]
        if source["kind"] != "none" and any(other["start_step"] < source["step"] for other in between):
            problems.append(
                f"generation {each['number']} took up step {source['step']} of generation {source['generation']}, "
                "which was overtaken before it"
            )
    numbers = [each["number"] for each in record.generations]
    return problems if numbers == sorted(set(numbers)) else [*problems, f"generations do not only grow: {numbers}"]


def _left(record: Record, control: Record, expected: Expected) -> Sequence[str]:
    return list(record.leftovers)


def _states(record: Record, control: Record, expected: Expected) -> Sequence[str]:
    numbers = [event["number"] for event in record.events]
    problems = [] if numbers == list(range(1, len(numbers) + 1)) else ["events have gaps or duplicates"]
    planned, injected = len(record.plan.external_faults), len(record.injected)
    if planned != injected:
        problems.append(f"{planned} external faults were planned, {injected} were injected before the job ended")
    state = JobState.QUEUED
    for event in [each for each in record.events if each["type"] == "state"]:
        target = JobState(event["data"]["to"])
        if target is not state and target not in TRANSITIONS[state]:
            problems.append(f"it went from {state} to {target}")
        state = target
    if (record.job["state"], record.job["reason"]) != (expected.state, expected.reason):
        problems.append(
            f"it ended {record.job['state']} ({record.job['reason']}: {record.job['message']}), "
            f"not {expected.state} ({expected.reason})"
        )
    for incident in record.incidents:
        if not incident["cause"] or not (incident["recovery_action"] or expected.state == JobState.CANCELLED):
            problems.append(f"incident {incident['id']} has no cause or no recovery action")
        elif expected.state == "SUCCEEDED" and incident["recovery_action"] not in expected.recovery_actions:
            problems.append(
                f"{incident['cause']}: recovery action {incident['recovery_action']}, "
                f"expected {' or '.join(sorted(expected.recovery_actions))}"
            )
    return problems


def _times(record: Record, control: Record, expected: Expected) -> Sequence[str]:
    problems = ["no rank was named as a straggler"] if expected.is_slow and not record.stragglers else []
    for incident in record.incidents:
        durations = record.durations(incident)
        for what, limit_s in (("detect", expected.detect_s), ("total", expected.total_s)):
            if (took_s := durations.get(what)) is not None and took_s > limit_s:
                problems.append(f"{incident['cause']}: {what} took {took_s:.2f} s, the limit is {limit_s:.2f} s")
        if (incident["steps_lost"] or 0) > expected.steps_lost:
            problems.append(
                f"{incident['cause']}: {incident['steps_lost']} steps lost, the limit is {expected.steps_lost}"
            )
    age_s = record.job["finished_at"] - record.job["created_at"]
    if abs(sum(record.seconds.values()) - age_s) > max(_ROUNDING_S, _SUM_WITHIN * age_s):
        problems.append(f"its seconds sum to {sum(record.seconds.values()):.2f}, it is {age_s:.2f} s old")
    return problems


def _budget(record: Record, control: Record, expected: Expected) -> Sequence[str]:
    reasons = [incident["reason"] for incident in record.incidents]
    right = list(expected.incidents)
    if expected.allows_more_incidents and len(reasons) > len(right):
        right += [right[-1]] * (len(reasons) - len(right))
    if len(reasons) != len(right) or any(reason not in any_of for reason, any_of in zip(reasons, right, strict=True)):
        expected_reasons = ", ".join(" or ".join(sorted(any_of)) for any_of in right) or "none"
        return [f"incidents are {', '.join(reasons) or 'none'}; they should be {expected_reasons}"]
    return []


def _checkpoint(record: Record, control: Record, expected: Expected) -> Sequence[str]:
    saves = any(event["type"] == "checkpoint" for event in record.events)
    if record.fewest_loadable == 0 or (saves and record.fewest_loadable is None):
        return ["there was a time without any checkpoint that verifies"]
    return []


_Check = Callable[[Record, Record, Expected], Sequence[str]]
_INVARIANTS: Sequence[tuple[str, str, _Check]] = (
    ("I1", "each sample of the committed history was used exactly once", _ledger),
    ("I2", "the loss of each step and the result are those of the undisturbed run", _digest),
    ("I3", "nothing that counts is of a generation that was overtaken", _fence),
    ("I4", "nothing of the job is left running or lying about", _left),
    ("I5", "all states were legal, and each incident has a cause and a recovery action", _states),
    ("I6", "it was seen and mended in time, and the account of time is whole", _times),
    ("I7", "its incidents are those that it should have, and nothing else was charged", _budget),
    ("I8", "from the first on there was always a checkpoint that verifies", _checkpoint),
)
MEANINGS: Mapping[str, str] = {name: meaning for name, meaning, _ in _INVARIANTS}
