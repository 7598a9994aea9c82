"""Learning rates, and batches that follow the number of ranks."""

import math
from dataclasses import replace
from typing import Any

import pytest

from regroup.workers.contract.rank_config import OptimizerConfig, RankConfig, ScheduleConfig, TrainingConfig
from regroup.workers.train.schedule import BatchSize, learning_rate
from tests.support.inputs.rank_configs import changed, fault

FOLLOWING = TrainingConfig(global_batch=16, batch="follows_world", dp_target=4)


def test_the_rate_is_a_function_of_the_step() -> None:
    schedule = ScheduleConfig("cosine", warmup_steps=10, min_lr_ratio=0.25)
    training = TrainingConfig(steps=110, optimizer=OptimizerConfig(lr=2.0), schedule=schedule)
    assert [learning_rate(step, training) for step in (1, 5, 10)] == [0.2, 1.0, 2.0]
    assert learning_rate(60, training) == pytest.approx(1.25)
    assert learning_rate(110, training) == pytest.approx(0.5)
    rates = [learning_rate(step, training) for step in range(10, 111)]
    assert rates == sorted(rates, reverse=True)
    training = replace(training, schedule=ScheduleConfig("constant"))
    assert {learning_rate(step, training) for step in (1, 110)} == {2.0}
    assert math.isfinite(learning_rate(1, replace(training, steps=1)))


def test_a_fixed_batch_knows_no_ranks() -> None:
    for degree in (1, 3, 4):
        batch = BatchSize(TrainingConfig(global_batch=16), degree)
        assert (batch.samples, batch.factor(1)) == (16, 1.0)


@pytest.mark.parametrize(("rule", "factor"), [("fixed", 1.0), ("linear", 0.25), ("sqrt", 0.5)])
def test_a_batch_that_follows_has_its_rules_rate(rule: str, factor: float) -> None:
    batch = BatchSize(replace(FOLLOWING, lr_rule=rule), 1)
    assert (batch.samples, batch.factor(1)) == (4, factor)
    assert BatchSize(replace(FOLLOWING, lr_rule=rule), 4).factor(9) == 1.0


def test_another_size_is_gone_to_slowly_and_the_way_survives_a_failure() -> None:
    training = replace(FOLLOWING, lr_rule="linear", lr_ramp_steps=4)
    whole, half, again = BatchSize(training, 4), BatchSize(training, 2), BatchSize(training, 2)
    assert whole.factor(10) == 1.0, "the first size is begun with: that is what the schedule's warm-up is for"
    half.load_state_dict(whole.state_dict())
    half.resumed_after(10)
    assert [half.factor(step) for step in range(10, 16)] == [1.0, 0.875, 0.75, 0.625, 0.5, 0.5]
    again.load_state_dict(half.state_dict())
    again.resumed_after(12)
    assert [again.factor(step) for step in (12, 13, 14, 20)] == [0.75, 0.625, 0.5, 0.5], "the same size: the same way"
    back = BatchSize(training, 4)
    back.load_state_dict(again.state_dict())
    back.resumed_after(12)
    assert [back.factor(step) for step in (12, 14, 16)] == [0.75, 0.875, 1.0], "from where it was"


def test_a_job_continues_with_a_smaller_batch_on_fewer_ranks(agent: Any, config: RankConfig) -> None:
    config = changed(
        config,
        training={
            "steps": 8,
            "validate_every": None,
            "batch": "follows_world",
            "dp_target": 4,
            "lr_rule": "linear",
            "lr_ramp_steps": 2,
            "schedule": ScheduleConfig("constant"),
        },
    )
    first = agent.run(changed(config, faults=[fault(0, 5, "sigkill", "forward")]), 4,
                      "following", show_errors=False)  # fmt: skip
    assert [row["samples"] for row in first.rows] == [16] * 4
    state = {"source": "memory", "step": 4, "generation": 1}
    after = agent.run(config, 2, "following", generation=2, restore=state, source_world=4, faults_fired=[0])
    assert set(after.codes) == {0}, after.errors
    assert [row["samples"] for row in after.rows] == [8] * 4
    assert [row["learning_rate"] for row in after.rows] == pytest.approx([0.0075, 0.005, 0.005, 0.005])
    assert len({row["samples_hash"] for row in (*first.rows, *after.rows)}) == 8, "no sample twice"
