"""The invariants I1–I8, which must hold after any failure. Each is checked on the record of a job with faults. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from regroup.service.chaos.observation import Record
from regroup.service.domain.states import TRANSITIONS, JobState

_SUM_WITHIN = 0.01
_ROUNDING_S = 0.05


@dataclass(frozen=True)
class Expected:
    """The expected outcome of one scenario."""

    state: str = "SUCCEEDED"
    reason: str = "completed"
    incidents: tuple[frozenset[str], ...] = ()
    """For each incident, in order: the permitted reasons."""
    recovery_actions: frozenset[str] = frozenset({"respawn"})
    detect_s: float = 1.0
    """Maximum time from an incident's fault until its detection."""
    total_s: float = 10.0
    """Maximum time from an incident's fault until the first step of the next generation."""
    steps_lost: int = 1
    """Maximum number of steps that one incident loses."""
    is_slow: bool = False
    """True if a rank must be reported as a straggler."""
    allows_more_incidents: bool = False
    """True if more incidents than listed may follow, with the reasons of the last listed one."""
    tolerance: float = 0.0
    """Relative tolerance of each step's loss. Above 0 if other ranks sum in another order: bits may then differ."""
    has_samples: bool = True
    """True if the steps report their samples. Steps of a script do not: only the steps of its ledger are checked."""


@dataclass(frozen=True)
class Finding:
    """The result of one invariant's check."""

    invariant: str
    """`I1` to `I8`."""
    meaning: str
    problems: tuple[str, ...]
    """Violations; empty if the invariant holds."""

    @property
    def passed(self) -> bool:
        """True if the invariant holds."""
        return not self.problems


def check_invariants(record: Record, control: Record, expected: Expected) -> tuple[Finding, ...]:
    """Check all eight invariants, in order."""
    return tuple(
        Finding(name, meaning, tuple(check(record, control, expected))) for name, meaning, check in _INVARIANTS
    )


def _ledger(record: Record, control: Record, expected: Expected) -> Sequence[str]:
    problems: list[str] = []
    if expected.has_samples and not record.ledger["exact"]:
        problems.append(f"the ledger is not exact: {record.ledger['problems']}")
    if expected.state == "SUCCEEDED" and record.ledger["steps"] != control.ledger["steps"]:
        problems.append(f"the ledger has {record.ledger['steps']} steps, the control run's {control.ledger['steps']}")
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
    wrong = [f"{key}: {ours[key]}, control run {theirs[key]}" for key in keys if ours[key] != theirs[key]]
    return [*wrong, *_curve(record, control, expected.tolerance)]


def _curve(record: Record, control: Record, tolerance: float) -> Sequence[str]:
    undisturbed = {row["step"]: row["loss"] for row in control.rows}
    pairs = [(row["step"], row["loss"], undisturbed.get(row["step"])) for row in record.rows]
    off = [
        f"the loss of step {step} is {ours}, in the control run {theirs}"
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
                f"step {row['step']} counts for generation {row['generation']}, "
                "but a later generation started before that step"
            )
        if any(each["time_s"] < row["time_s"] for each in later):
            problems.append(
                f"generation {row['generation']} computed step {row['step']} after a later generation was formed"
            )
    for each in record.generations:
        source = each["restore"]
        between = [other for number, other in formed.items() if source["generation"] < number < each["number"]]
        if source["kind"] != "none" and any(other["start_step"] < source["step"] for other in between):
            problems.append(
                f"generation {each['number']} restored step {source['step']} of generation {source['generation']}, "
                "but a generation between them started before that step"
            )
    numbers = [each["number"] for each in record.generations]
    return problems if numbers == sorted(set(numbers)) else [*problems, f"generations are not increasing: {numbers}"]


def _left(record: Record, control: Record, expected: Expected) -> Sequence[str]:
    return list(record.leftovers)


def _states(record: Record, control: Record, expected: Expected) -> Sequence[str]:
    numbers = [event["number"] for event in record.events]
    problems = [] if numbers == list(range(1, len(numbers) + 1)) else ["events have gaps or duplicates"]
    planned, injected = len(record.plan.external_faults), len(record.injected)
    if planned != injected:
        problems.append(f"of {planned} planned external faults, {injected} were injected before the job ended")
    state = JobState.QUEUED
    for event in [each for each in record.events if each["type"] == "state"]:
        target = JobState(event["data"]["to"])
        if target is not state and target not in TRANSITIONS[state]:
            problems.append(f"the transition from {state} to {target} is illegal")
        state = target
    if (record.job["state"], record.job["reason"]) != (expected.state, expected.reason):
        problems.append(
            f"the job ended as {record.job['state']} ({record.job['reason']}: {record.job['message']}), "
            f"expected {expected.state} ({expected.reason})"
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
    problems = ["no rank was reported as a straggler"] if expected.is_slow and not record.stragglers else []
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
        problems.append(
            f"the seconds of all classes sum to {sum(record.seconds.values()):.2f}, the age is {age_s:.2f} s"
        )
    return problems


def _budget(record: Record, control: Record, expected: Expected) -> Sequence[str]:
    reasons = [incident["reason"] for incident in record.incidents]
    right = list(expected.incidents)
    if expected.allows_more_incidents and len(reasons) > len(right):
        right += [right[-1]] * (len(reasons) - len(right))
    if len(reasons) != len(right) or any(reason not in any_of for reason, any_of in zip(reasons, right, strict=True)):
        expected_reasons = ", ".join(" or ".join(sorted(any_of)) for any_of in right) or "none"
        return [f"incidents: {', '.join(reasons) or 'none'}; expected: {expected_reasons}"]
    return []


def _checkpoint(record: Record, control: Record, expected: Expected) -> Sequence[str]:
    saves = any(event["type"] == "checkpoint" for event in record.events)
    if record.fewest_loadable == 0 or (saves and record.fewest_loadable is None):
        return ["at some time, no checkpoint was valid"]
    return []


_Check = Callable[[Record, Record, Expected], Sequence[str]]
_INVARIANTS: Sequence[tuple[str, str, _Check]] = (
    ("I1", "each sample of the committed history was used exactly once", _ledger),
    ("I2", "the loss of each step and the result are equal to those of the control run", _digest),
    ("I3", "no step or state that counts comes from a superseded generation", _fence),
    ("I4", "no process and no scratch folder of the job is left", _left),
    ("I5", "all state transitions were legal, and each incident has a cause and a recovery action", _states),
    ("I6", "detection and recovery took no longer than allowed, and every second is accounted for", _times),
    ("I7", "the incidents are the expected ones, and no other failure was charged", _budget),
    ("I8", "since the first checkpoint, there was always a valid one", _checkpoint),
)
MEANINGS: Mapping[str, str] = {name: meaning for name, meaning, _ in _INVARIANTS}
