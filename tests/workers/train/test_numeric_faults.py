"""Numeric faults: all ranks react alike, and replicas that differ are named."""

import signal
from typing import Any

import pytest

from regroup.workers.contract.rank_config import (
    LossSpikeAction,
    LossSpikeConfig,
    NonFiniteAction,
    NonFiniteConfig,
    RankConfig,
    RepeatedSpike,
)
from tests.support.inputs.rank_configs import changed, fault

ROLLBACK = LossSpikeConfig(LossSpikeAction.ROLLBACK)


@pytest.fixture(params=["fsdp", "ddp"])
def spread(request: pytest.FixtureRequest, config: RankConfig) -> RankConfig:
    return changed(config, parallel={"data_parallel": request.param})


@pytest.fixture
def replicas(config: RankConfig) -> RankConfig:
    """Three ranks that hold the same."""
    return changed(config, parallel={"data_parallel": "ddp"})


def long(config: RankConfig) -> RankConfig:
    """Return a job with as many steps as a spike needs before it, and with little work in each."""
    return changed(config, training={"steps": 24, "global_batch": 4, "validate_every": None})


def again(agent: Any, config: RankConfig, memory: str, step: int, world_size: int = 2) -> Any:
    """Run the next generation from this step's state in memory. No fault is injected twice."""
    source = {"source": "memory", "step": step, "generation": 1}
    return agent.run(config, world_size, memory, generation=2, restore=source, faults_fired=[0, 1])


def test_a_nan_loss_costs_its_step_and_no_bit(agent: Any, spread: RankConfig) -> None:
    name = spread.parallel.data_parallel
    whole = agent.run(spread, 2, f"finite-{name}")
    spread = changed(spread, faults=[fault(1, 3, "nan_loss")], non_finite=NonFiniteConfig(NonFiniteAction.ROLLBACK))
    faulty = agent.run(spread, 2, f"nan-{name}", show_errors=False)
    assert faulty.codes == [1, 1], "both, though one of them had the wrong number"
    assert [failed["error"]["error_class"] for failed in faulty.of("Failed")] == ["non_finite"] * 2
    assert all(error.startswith("NonFiniteError: step 3: loss nan, gradient norm nan") for error in faulty.errors)
    assert [row["step"] for row in faulty.rows] == [1, 2]
    after = again(agent, spread, f"nan-{name}", 2)
    assert after.result == whole.result
    assert [*faulty.losses, *after.losses] == whole.losses


def test_a_skipped_step_is_one_without_an_update_on_every_rank(agent: Any, spread: RankConfig) -> None:
    name = spread.parallel.data_parallel
    spread = changed(
        spread, faults=[fault(1, 3, "nan_loss")], non_finite=NonFiniteConfig(NonFiniteAction.SKIP, max_skips=3)
    )
    faulty = agent.run(spread, 2, f"skipped-{name}")
    assert faulty.codes == [0, 0]
    assert [row["step"] for row in faulty.rows] == [1, 2, 3, 4]
    assert [row["loss"] is None for row in faulty.rows] == [False, False, True, False]
    assert {row["samples"] for row in faulty.rows} == {16}, "its samples count as seen"
    (note,) = faulty.of("Note")
    assert (note["kind"], note["data"]["step"]) == ("step_skipped", 3)
    elsewhere = changed(spread, faults=[fault(0, 3, "nan_loss")])
    assert agent.run(elsewhere, 2, f"skipped-by-0-{name}").result == faulty.result, (
        "the result does not depend on the rank with the fault"
    )


def test_more_skips_than_allowed_end_it(agent: Any, config: RankConfig) -> None:
    config = changed(
        config,
        faults=[fault(0, step, "nan_loss") for step in (1, 2, 3)],
        non_finite=NonFiniteConfig(NonFiniteAction.SKIP, max_skips=2),
    )
    faulty = agent.run(config, 2, "skips", show_errors=False)
    assert faulty.codes == [1, 1]
    assert "more than recovery.budgets.non_finite=2 such steps were skipped" in faulty.errors[0]
    assert len(faulty.rows) == 2


@pytest.mark.parametrize("phase", ["forward", "backward", "optimizer"])
def test_a_flipped_bit_in_one_replica_is_found_and_the_state_before_is_good(
    agent: Any, replicas: RankConfig, phase: str
) -> None:
    whole = agent.run(replicas, 3, "alike")
    replicas = changed(replicas, faults=[fault(1, 3, "flip_bit", phase)])
    faulty = agent.run(replicas, 3, f"flipped-{phase}", show_errors=False)
    assert faulty.codes == [1, 1, 1]
    assert [failed["error"]["error_class"] for failed in faulty.of("Failed")] == ["corruption"] * 3
    details = faulty.of("Failed")[0]["error"]["details"]
    assert (details["outlier_ranks"], details["of_ranks"], details["is_certain"]) == ([1], [0, 1, 2], True)
    assert details["step"] == 3 and details["tensors"]
    assert [row["step"] for row in faulty.rows] == [1, 2, 3], "found with the next step's sum, before its update"
    after = again(agent, replicas, f"flipped-{phase}", 2, 3)
    assert after.result == whole.result


def test_with_two_replicas_the_wrong_one_is_uncertain(agent: Any, replicas: RankConfig) -> None:
    replicas = changed(replicas, faults=[fault(0, 2, "flip_bit")])
    faulty = agent.run(replicas, 2, "two", show_errors=False)
    assert faulty.codes == [1, 1]
    assert not faulty.of("Failed")[0]["error"]["details"]["is_certain"]


def test_replicas_are_compared_in_the_last_step_before_it_is_saved(agent: Any, replicas: RankConfig) -> None:
    replicas = changed(replicas, faults=[fault(2, 4, "flip_bit", "optimizer")])
    faulty = agent.run(replicas, 3, "last", show_errors=False)
    assert faulty.codes == [1, 1, 1]
    assert faulty.of("Failed")[0]["error"]["details"]["outlier_ranks"] == [2]
    assert not faulty.of("Pinned") and not faulty.of("Done")


def test_between_snapshots_it_is_found_at_the_next_one(agent: Any, replicas: RankConfig) -> None:
    replicas = changed(replicas, training={"steps": 8})
    replicas = changed(replicas, snapshot={"every_steps": 3})
    whole = agent.run(replicas, 3, "seldom")
    replicas = changed(replicas, faults=[fault(1, 4, "flip_bit")])
    faulty = agent.run(replicas, 3, "seldom-flipped", show_errors=False)
    assert faulty.of("Failed")[0]["error"]["details"]["step"] == 6
    assert again(agent, replicas, "seldom-flipped", 3, 3).result == whole.result


def test_without_the_detector_a_flipped_bit_stays_unnoticed(agent: Any, replicas: RankConfig) -> None:
    """Check that without the detector the run ends normally, with wrong parameters."""
    whole = agent.run(replicas, 3, "on")
    replicas = changed(replicas, faults=[fault(1, 3, "flip_bit")])
    faulty = agent.run(replicas, 3, "off", verify_replicas=False)
    assert faulty.codes == [0, 0, 0]
    assert faulty.result["parameters"] != whole.result["parameters"]


HYBRID = ("fsdp", {"dp_replicate": 2, "dp_shard": 2}, {})


def test_a_shard_is_compared_with_that_of_the_other_replica(agent: Any, config: RankConfig) -> None:
    whole = agent.spread(config, HYBRID, "hybrid")
    assert whole.codes == [0] * 4
    config = changed(config, faults=[fault(3, 3, "flip_bit")])
    faulty = agent.spread(config, HYBRID, "hybrid-flipped", show_errors=False)
    details = faulty.of("Failed")[0]["error"]["details"]
    assert (details["outlier_ranks"], details["is_certain"]) == ([1, 3], False), "ranks 1 and 3 hold the same shards"
    source = {"source": "memory", "step": 2, "generation": 1}
    after = agent.spread(config, HYBRID, "hybrid-flipped", generation=2, restore=source, faults_fired=[0])
    assert after.result == whole.result


def test_a_flipped_bit_in_a_snapshot_fails_its_checksum(agent: Any, config: RankConfig) -> None:
    config = changed(config, faults=[fault(1, 3, "flip_snapshot"), fault(1, 3, "sigkill", "backward")])
    faulty = agent.run(config, 2, "bad-snapshot", show_errors=False)
    assert faulty.codes[1] == -signal.SIGKILL
    with pytest.raises(LookupError, match="no set of rank 1"):
        again(agent, config, "bad-snapshot", 2)
    assert again(agent, config, "bad-snapshot", 1).codes == [0, 0]


@pytest.mark.parametrize("of", ["loss", "gradient norm"])
def test_a_spike_is_reported_or_its_step_is_repeated(agent: Any, config: RankConfig, of: str) -> None:
    config = long(config)
    whole = agent.run(config, 2, "even")
    do = "spike_loss" if of == "loss" else "spike_gradient"
    config = changed(config, faults=[fault(1, 22, do)], loss_spike=LossSpikeConfig(LossSpikeAction.WARN))
    warned = agent.run(config, 2, "spiked")
    note = next(each for each in warned.of("Note") if each["data"]["of"] == of)
    assert (note["kind"], note["data"]["step"]) == ("loss_spike", 22)
    assert note["data"]["value"] > note["data"]["limit"]
    assert (warned.losses[21] == whole.losses[21]) is (of == "gradient norm"), "the loss of the step is right"
    assert warned.result["parameters"] != whole.result["parameters"]

    config = changed(config, loss_spike=ROLLBACK)
    faulty = agent.run(config, 2, "back", show_errors=False)
    assert faulty.codes == [1, 1]
    assert [failed["error"]["error_class"] for failed in faulty.of("Failed")] == ["loss_spike"] * 2
    details = faulty.of("Failed")[0]["error"]["details"]
    assert (details["step"], details["of"]) == (22, of)
    assert [row["step"] for row in faulty.rows] == list(range(1, 22))
    config = changed(config, loss_spike={"repeated": [RepeatedSpike(22, of, details["limit"])]})
    after = again(agent, config, "back", 21)
    assert after.result == whole.result and not after.of("Note")


@pytest.mark.parametrize("axis", ["tp", "pp"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_wild_gradient_of_a_part_of_a_model_stands_out(agent: Any, config: RankConfig, axis: str, rank: int) -> None:
    config = changed(long(config), model={"heads": 4, "kv_heads": 2, "vocab_size": 264})
    config = changed(config, faults=[fault(rank, 22, "spike_gradient")], loss_spike=ROLLBACK)
    faulty = agent.run(config, 2, f"wild-{axis}-{rank}", layout={axis: 2}, show_errors=False)
    details = faulty.of("Failed")[0]["error"]["details"]
    assert (faulty.codes, details["step"], details["of"]) == ([1, 1], 22, "gradient norm")


def test_a_loss_of_a_pipeline_stands_out(agent: Any, config: RankConfig) -> None:
    config = changed(long(config), faults=[fault(1, 22, "spike_loss")], loss_spike=ROLLBACK)
    faulty = agent.run(config, 2, "wild-pipeline", layout={"pp": 2}, show_errors=False)
    assert faulty.of("Failed")[0]["error"]["details"]["of"] == "loss", "the last stage has it"
