"""Every scenario of `regroup chaos` with several seeds: time to detect, time to recover, and steps lost."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from benchmarks.report.facts import machine_facts
from benchmarks.trials import stats
from regroup.api.chaos.suite import Case, run_cases
from regroup.service.chaos.scenarios import SCENARIOS

SEEDS = (1, 2, 3)


def run(failures: list[str], save_rows: Callable[[dict[str, Any]], None]) -> None:
    """Run each scenario with each seed. Call `save_rows` with the results so far after each run."""
    facts = {"seeds": list(SEEDS), "date": datetime.now(UTC).date().isoformat(), "measured_on": machine_facts()}
    found: dict[str, list[dict[str, Any]]] = {}
    cases = [Case(scenario, seed) for scenario in SCENARIOS for seed in SEEDS]
    for _, outcome in run_cases(cases, lambda text: print(text, flush=True)):
        failures += [f"{outcome.name}, seed {outcome.seed}: {problem}" for problem in outcome.to_json()["problems"]]
        print(f"{outcome.name}: {'passed' if outcome.passed else 'FAILED'}", flush=True)
        found.setdefault(outcome.name, []).append(outcome.to_json())
        save_rows({**facts, "rows": [row_of(outcomes) for outcomes in found.values()]})


def row_of(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of one scenario, from the worst incident of each run."""
    causes = [
        (reason, action)
        for each in outcomes
        for reason, action in zip(each["incidents"], each["recovery_actions"], strict=True)
    ]
    return {
        "number": outcomes[0]["number"],
        "name": outcomes[0]["name"],
        "what": outcomes[0]["what"],
        "n": len(outcomes),
        "passed": sum(each["passed"] for each in outcomes),
        "detect_s": _spread([each["detect_s"] for each in outcomes]),
        "recover_s": _spread([each["recover_s"] for each in outcomes]),
        "steps_lost_max": max(each["steps_lost"] for each in outcomes),
        "causes": [list(pair) for pair in dict.fromkeys(causes)],
        "problems": [problem for each in outcomes for problem in each["problems"]],
    }


def _spread(values: Sequence[float | None]) -> dict[str, float] | None:
    measured = [value for value in values if value is not None]
    return {"p50": stats.median(measured), "p95": stats.percentile(measured, 95)} if measured else None
