"""Outcomes of scenarios as plain data and as pages. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from regroup.service.chaos.invariants import Expected, Finding, check_invariants
from regroup.service.chaos.observation import Record
from regroup.service.chaos.scenarios import ELSEWHERE, Scenario


@dataclass(frozen=True)
class Outcome:
    """One run of one scenario."""

    number: str
    name: str
    what: str
    seed: int
    findings: tuple[Finding, ...]
    record: Record
    disabled_detectors: tuple[str, ...] = ()
    """Detectors that were disabled."""

    @property
    def passed(self) -> bool:
        """True if all invariants hold."""
        return all(finding.passed for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return the verdict, times and losses with their evidence, for the report."""
        return {
            "number": self.number,
            "name": self.name,
            "what": self.what,
            "seed": self.seed,
            "disabled_detectors": list(self.disabled_detectors),
            "passed": self.passed,
            "invariants": {finding.invariant: finding.passed for finding in self.findings},
            "problems": [f"{each.invariant}: {problem}" for each in self.findings for problem in each.problems],
            **summarize_times(self.record),
            "plan": self.record.plan.to_json(),
            "injected": [asdict(each) for each in self.record.injected],
            "job": {key: self.record.job[key] for key in ("id", "state", "reason", "message", "generation", "digest")},
        }


def judge_scenario(scenario: Scenario, seed: int, record: Record, control: Record) -> Outcome:
    """Return the outcome of a scenario's job."""
    findings, disable_detectors = (
        check_invariants(record, control, scenario.expected),
        tuple(record.job["spec"]["disable_detectors"]),
    )
    what = (
        f"{scenario.what}; disabled detectors: {', '.join(disable_detectors)}" if disable_detectors else scenario.what
    )
    return Outcome(scenario.number, scenario.name, what, seed, findings, record, disable_detectors)


def judge_soak(record: Record, control: Record) -> Outcome:
    """Return the outcome of a soak. Causes of the mix are permitted, and so is the loss of steps that had no mirror."""
    any_of = frozenset({"rank_exit", "hang", "agent_lost", "node_lost", "store_exit", "zygote_exit"})
    expected = Expected(
        incidents=(any_of,) * len(record.incidents), recovery_actions=frozenset({"respawn", "spare", "disk"}),
        detect_s=15, total_s=60, steps_lost=200,
    )  # fmt: skip
    what = f"{len(record.plan.faults)} faults in the job and {len(record.plan.external_faults)} external faults"
    return Outcome("20", "soak", what, record.plan.seed, check_invariants(record, control, expected), record)


def summarize_times(record: Record) -> dict[str, Any]:
    """Return the lost steps, and the seconds until detection and until the next step, of the worst incident."""
    incidents = record.incidents
    took = [record.durations(each) for each in incidents]
    detected = [each["detect"] for each in took if each.get("detect") is not None]
    mended = [each["total"] for each in took if each.get("total") is not None]
    again = [each.resumed_s - each.time_s for each in record.injected if each.resumed_s is not None]
    return {
        "incidents": [each["reason"] for each in incidents],
        "recovery_actions": [each["recovery_action"] for each in incidents],
        "detect_s": max(detected, default=None),
        "recover_s": max(mended or again, default=None),
        "steps_lost": sum(each["steps_lost"] or 0 for each in incidents),
    }


def render_outcomes(outcomes: Sequence[Mapping[str, Any]]) -> str:
    """Render outcomes, given as plain data, as a Markdown table, followed by the violations."""
    lines = [
        "| # | injected | detected | recovered | steps lost | cause, recovery action | invariants |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_row(outcome) for outcome in outcomes]
    wrong = [outcome for outcome in outcomes if not outcome["passed"]]
    for outcome in wrong:
        lines += ["", f"**{outcome['name']}** violates:", ""]
        lines += [f"- {problem}" for problem in outcome["problems"]]
    return "\n".join(lines) + "\n"


def render_elsewhere() -> str:
    """Render the scenarios that this command cannot run, with the reason and the tests that run them."""
    lines = ["| # | scenario | reason | run by |", "|---|---|---|---|"]
    rows = (
        f"| {each.number} | {each.what} | {each.why} | {', '.join(f'`{test}`' for test in each.tests.split())} |"
        for each in ELSEWHERE
    )
    return "\n".join([*lines, *rows]) + "\n"


def _row(outcome: Mapping[str, Any]) -> str:
    broken = [name for name, passed in outcome["invariants"].items() if not passed]
    causes = (
        ", ".join(dict.fromkeys(f"{cause}, {action or '–'}" for cause, action in _causes(outcome))) or "no incident"
    )
    cells = (
        outcome["number"],
        outcome["what"],
        _seconds(outcome["detect_s"]),
        _seconds(outcome["recover_s"]),
        str(outcome["steps_lost"]),
        causes,
        f"violated: {', '.join(broken)}" if broken else "hold",
    )
    return f"| {' | '.join(cells)} |"


def _causes(outcome: Mapping[str, Any]) -> list[tuple[str, str]]:
    return list(zip(outcome["incidents"], outcome["recovery_actions"], strict=True))


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} s"
