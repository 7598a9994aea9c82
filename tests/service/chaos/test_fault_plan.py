"""Fault plans: a plan is a pure function of scenario and seed, so each run can be repeated."""

from pathlib import Path

import pytest

from regroup.service.chaos.fault_plan import MIX, PlannedFault, parse_mix, plan_soak
from regroup.service.chaos.scenarios import ELSEWHERE, RANKS, SCENARIOS, Scenario, find_scenario, sort_key
from regroup.service.spec.job import parse_spec


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_same_seed_gives_the_same_plan(scenario: Scenario) -> None:
    assert scenario.plan(7).to_json() == scenario.plan(7).to_json()


def test_different_seeds_give_different_plans() -> None:
    scenario = find_scenario("rank-killed")
    assert scenario is not None
    assert len({str(scenario.plan(seed).faults) for seed in range(20)}) > 10


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_planned_faults_form_a_legal_spec_and_hit_steps_of_the_job(scenario: Scenario) -> None:
    for seed in range(5):
        plan = scenario.plan(seed)
        parse_spec({
            "name": scenario.name,
            "workload": {"kind": "builtin", "data": {"train": ["/text"]}},
            "training": {"global_batch": 8, "micro_batch": 2, "sequence": 64, "steps": plan.steps},
            "layout": {"dp": RANKS},
            **plan.spec_fields,
            "faults": [dict(fault) for fault in plan.faults],
        })  # fmt: skip
        assert plan.faults or plan.external_faults
        assert all(fault["at"]["step"] < plan.steps for fault in plan.faults)
        assert all(fault.after_step < plan.steps for fault in plan.external_faults)


def test_names_and_numbers_are_unique_and_both_find_a_scenario() -> None:
    assert len({scenario.name for scenario in SCENARIOS}) == len({scenario.number for scenario in SCENARIOS})
    assert len(SCENARIOS) == len({scenario.name for scenario in SCENARIOS})
    assert find_scenario("16b") is find_scenario("node-frozen") is not None
    assert find_scenario("nothing") is None


def test_listed_tests_outside_the_scenarios_exist() -> None:
    root = Path(__file__).parents[3]
    assert [test for each in ELSEWHERE for test in each.tests.split() if not (root / test).exists()] == []
    assert all(each.tests for each in ELSEWHERE)


def test_a_soak_plan_follows_its_mix_of_causes() -> None:
    plan = plan_soak(3, steps=20_000, every=20, ranks=4, nodes=2)
    assert (
        plan
        == plan_soak(3, steps=20_000, every=20, ranks=4, nodes=2)
        != plan_soak(4, steps=20_000, every=20, ranks=4, nodes=2)
    )
    total = len(plan.faults) + len(plan.external_faults)
    assert total == 999
    exits = sum(fault["do"] == "sigkill" for fault in plan.faults)
    assert 0.65 < exits / total < 0.75
    assert {fault.do for fault in plan.external_faults} == {
        "kill_node",
        "freeze_node",
        "kill_supervisor",
        "kill_server",
    }
    steps = [fault.after_step for fault in plan.external_faults]
    assert steps == sorted(steps) and max(steps) < plan.steps


def test_a_soak_with_only_rank_exits_has_no_external_faults() -> None:
    plan = plan_soak(3, steps=2000, every=50, ranks=4, nodes=2, mix={"rank_exit": 1})
    assert not plan.external_faults and {fault["do"] for fault in plan.faults} == {"sigkill"}


def test_invalid_mixes_and_faults_are_refused() -> None:
    assert parse_mix(["rank_exit=0.5", "hang=1"]) == {"rank_exit": 0.5, "hang": 1.0}
    with pytest.raises(ValueError, match="CAUSE=NUMBER"):
        parse_mix(["rank_exit"])
    for mix in ({"meteor": 1.0}, {"hang": 0.0}, {"hang": -1.0, "node": 2.0}, {}):
        with pytest.raises(ValueError, match=r"unknown cause|above 0"):
            plan_soak(0, steps=100, every=10, ranks=4, nodes=2, mix=mix)
    with pytest.raises(ValueError, match="unknown external fault"):
        PlannedFault("kill_moon", 3)
    assert sum(MIX.values()) == pytest.approx(1)


def test_scenarios_are_sorted_by_number() -> None:
    assert sorted(SCENARIOS, key=lambda each: sort_key(each.number)) == list(SCENARIOS)
    assert sort_key("2") < sort_key("16a") < sort_key("16b") < sort_key("33d")
