"""Tests of the figures that the faults benchmark computes from the records of jobs."""

from typing import Any

import pytest

from benchmarks.faults import ROWS, summary
from benchmarks.injection.fault_peers import result
from benchmarks.injection.fault_rows import figures_of, plan_of, trials_of
from benchmarks.injection.fault_scenarios import row_of
from benchmarks.injection.fault_soak import short_of
from benchmarks.trials.trial import KillPoint, Trial
from regroup.service.chaos.fault_plan import FaultPlan, PlannedFault, spec_fault
from regroup.service.chaos.observation import InjectedFault, Record


def row(step: int, time_s: float, generation: int = 1) -> dict[str, Any]:
    return {"step": step, "time_s": time_s, "generation": generation}


def incident(at_step: int, fault_s: float, seen_s: float, first_step_s: float | None, lost: int = 0) -> dict[str, Any]:
    times = {"fault_s": fault_s, "seen_s": seen_s, "first_step_s": first_step_s}
    return {"at_step": at_step, "reason": "rank_exit", "recovery_action": "respawn", "rank": 1, "times": times,
            "steps_lost": lost,
            "durations": {}}  # fmt: skip


def record(**fields: Any) -> Record:
    empty: dict[str, Any] = dict.fromkeys(("incidents", "events", "generations", "rows", "checkpoints"), ())
    return Record(FaultPlan("x", 0, 9), **{"job": {}, "ledger": {}, "seconds": {}, **empty, **fields})


def test_the_recovery_time_of_a_rank_exit_ends_with_the_first_new_step() -> None:
    again = [row(1, 1.0), row(2, 9.5, 2), row(3, 9.9, 2)]  # step 2 was committed before and is repeated
    (trial,) = trials_of("rank_exit", record(rows=again, incidents=[incident(2, 9.0, 9.1, 9.5, lost=1)]))
    assert (trial["detect_s"], trial["first_step_s"]) == (pytest.approx(0.1), pytest.approx(0.5))
    assert trial["total_s"] == pytest.approx(0.9)
    assert figures_of("rank_exit", [trial])["p50_s"] == pytest.approx(0.9)


def test_an_incident_without_an_end_is_not_a_trial() -> None:
    assert trials_of("rank_exit", record(rows=[row(1, 1.0)], incidents=[incident(1, 2.0, 2.1, None)])) == []


def test_the_time_of_a_hang_starts_with_the_last_step_before_the_hang() -> None:
    rows = [row(1, 1.0), row(2, 2.0), row(3, 13.0, 2)]
    (trial,) = trials_of("hang", record(rows=rows, incidents=[incident(2, 2.4, 11.0, 13.0)]))
    assert (trial["detect_s"], trial["total_s"]) == (9.0, 11.0)


def test_the_time_of_a_hang_with_a_lost_step_starts_with_the_last_kept_step() -> None:
    again = [row(1, 1.0), row(2, 12.5, 2), row(3, 13.0, 2)]  # step 2 was committed before the hang, at about 2.0
    (trial,) = trials_of("hang", record(rows=again, incidents=[incident(2, 2.4, 11.0, 12.5, lost=1)]))
    assert (trial["detect_s"], trial["total_s"]) == (10.0, 12.0)


def test_the_time_of_a_node_loss_starts_with_the_injection() -> None:
    injected = [InjectedFault("freeze_node", "", 5.0, 3, 1, 12.0)]
    rows = [row(3, 4.9), row(4, 12.0, 2)]
    (trial,) = trials_of("node_loss", record(rows=rows, injected=injected, incidents=[incident(3, 9.0, 10.0, 12.0)]))
    assert (trial["do"], trial["detect_s"], trial["total_s"]) == ("freeze_node", 5.0, 7.0)


def test_a_supervisor_has_recovered_when_a_later_step_is_observed() -> None:
    injected = [
        InjectedFault("kill_supervisor", "", 5.0, 3, 1, 7.5),
        InjectedFault("kill_supervisor", "", 9.0, 8, 1, None),
    ]
    trials = trials_of("supervisor", record(injected=injected))
    assert [trial["readopt_s"] for trial in trials] == [2.5]
    assert figures_of("supervisor", trials) == {
        "n": 1, "steps_lost_max": 0, "readopt_p50_s": 2.5, "readopt_p95_s": 2.5,
    }  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_a_plan_contains_the_requested_number_of_faults_within_its_job(name: str) -> None:
    plan = plan_of(name, 20, 5)
    assert plan == plan_of(name, 20, 5) != plan_of(name, 20, 6)
    steps = [fault["at"]["step"] for fault in plan.faults] or [fault.after_step for fault in plan.external_faults]
    assert len(steps) == 20 and steps == sorted(set(steps)) and steps[-1] < plan.steps


def test_half_of_the_node_losses_are_frozen_nodes() -> None:
    kinds = [fault.do for fault in plan_of("node_loss", 20, 5).external_faults]
    assert kinds.count("freeze_node") == kinds.count("kill_node") == 10


def test_the_summary_contains_the_maximum_and_the_total_over_the_rows() -> None:
    rows = {"rank_exit": {"steps_lost_max": 0, "false_alarms": 1}, "hang": {"steps_lost_max": 1, "false_alarms": 2}}
    assert summary({**rows, "soak": {}}) == {"steps_lost_max_memory": 1, "straggler": {"false_alarms": 3}}
    assert summary({}) == {}


def test_full_strength_requires_all_ranks() -> None:
    kill_point = KillPoint(1, 14, "forward")
    trials = [
        Trial("regroup", kill_point, 1.0, 0.4, 0.5, 1),
        Trial(
            "torchft", kill_point, 9.0, 0.2, 0.2, 0, kill_to_full_strength_s=4.0
        ),  # three replicas continue with fewer samples
    ]
    found = result(trials)
    assert found["ratio"] == pytest.approx(8.0) and summary({"torchft": found})["ratio"] == {
        "torchft_full_strength": pytest.approx(8.0)
    }
    assert result(trials[:1])["ratio"] is None and "ratio" not in summary({"torchft": result(trials[:1])})


def test_a_scenario_is_summarized_over_its_runs() -> None:
    def outcome(detect_s: float | None, lost: int, *problems: str) -> dict[str, Any]:
        return {"number": "1", "name": "x", "what": "y", "passed": not problems, "problems": list(problems),
                "incidents": ["rank_exit"], "recovery_actions": ["respawn"], "detect_s": detect_s, "recover_s": None,
                "steps_lost": lost}  # fmt: skip

    found = row_of([outcome(0.1, 0), outcome(0.3, 1, "I2: other bits"), outcome(None, 0)])
    assert (found["n"], found["passed"], found["steps_lost_max"]) == (3, 2, 1)
    assert found["detect_s"] == {"p50": pytest.approx(0.2), "p95": pytest.approx(0.29)}
    assert found["recover_s"] is None and found["causes"] == [["rank_exit", "respawn"]]
    assert found["problems"] == ["I2: other bits"]


def test_a_soak_reports_planned_faults_that_were_not_injected() -> None:
    plan = FaultPlan(
        "soak", 0, 99, (spec_fault("sigkill", 1, 5),), (PlannedFault("kill_node", 9), PlannedFault("kill_server", 20))
    )
    injected = [InjectedFault(fault.do, "", 1.0, fault.after_step, 1) for fault in plan.external_faults]
    seen = [incident(5, 1.0, 1.1, 2.0), incident(9, 3.0, 3.1, 4.0)]
    assert short_of(plan, record(incidents=seen, injected=injected)) == []
    assert short_of(plan, record(incidents=seen[:1], injected=injected)) == [
        "2 incidents were planned, 1 were observed"
    ]
    assert short_of(plan, record(incidents=seen, injected=injected[:1])) == [
        "2 external faults were planned, 1 were observed"
    ]
