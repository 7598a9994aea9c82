"""The result is a function of seed and spec: not of layout, failure, or where a run was cut and taken up again."""

import signal
from typing import Any

import pytest

from regroup.workers.contract.rank_config import RankConfig
from tests.support.inputs.rank_configs import changed, fault


@pytest.fixture
def exact(config: RankConfig) -> RankConfig:
    """The small job in float64, where layouts agree far below what float32 reordering hides."""
    return changed(config, training={"precision": "fp64"})


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """Results of one rank by precision; filled on demand."""
    return {}


def run_alone(agent: Any, alone: dict[str, Any], config: RankConfig) -> Any:
    precision = config.training.precision
    if precision not in alone:
        alone[precision] = agent.run(changed(config, parallel={"data_parallel": "fsdp"}), 1, f"alone-{precision}")
    return alone[precision]


@pytest.mark.parametrize(
    ("data_parallel", "world_size"), [("fsdp", 2), ("fsdp", 3), ("fsdp", 4), ("ddp", 2), ("ddp", 3)]
)
def test_every_layout_computes_the_same(
    agent: Any, alone: dict[str, Any], exact: RankConfig, data_parallel: str, world_size: int
) -> None:
    # On three ranks the eight micro-batches do not divide: one of the nine that run is a dummy.
    one_rank = run_alone(agent, alone, exact)
    exact = changed(exact, parallel={"data_parallel": data_parallel})
    spread = agent.run(exact, world_size, f"{data_parallel}{world_size}")
    assert (one_rank.codes, spread.codes) == ([0], [0] * world_size)
    assert [row["step"] for row in spread.rows] == [1, 2, 3, 4]
    for one, many in zip(one_rank.rows, spread.rows, strict=True):
        assert many["loss"] == pytest.approx(one["loss"], rel=1e-12)
        assert many["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-10)
        assert (many["tokens"], many["samples"], many["samples_hash"]) == (256, 16, one["samples_hash"])
        assert many["learning_rate"] == one["learning_rate"]
        if one["validation_loss"] is not None:
            assert many["validation_loss"] == pytest.approx(one["validation_loss"], rel=1e-11)
    assert [row["validation_loss"] is not None for row in spread.rows] == [False, True, False, True]
    assert spread.result["samples"] == one_rank.result["samples"]
    assert spread.result["parameter_count"] == one_rank.result["parameter_count"]
    assert spread.losses[-1] < spread.losses[0]


def test_in_float32_layouts_agree_within_reordering(agent: Any, alone: dict[str, Any], config: RankConfig) -> None:
    one_rank, spread = run_alone(agent, alone, config), agent.run(config, 2, "fp32")
    assert spread.losses == pytest.approx(one_rank.losses, rel=1e-5)


def test_in_bf16_it_learns_and_both_kinds_of_data_parallelism_are_close(agent: Any, config: RankConfig) -> None:
    config = changed(config, training={"precision": "bf16"})
    sharded = agent.run(config, 2, "bf16-fsdp")
    config = changed(config, parallel={"data_parallel": "ddp"})
    replicated = agent.run(config, 2, "bf16-ddp")
    assert sharded.losses == pytest.approx(replicated.losses, rel=2e-2)
    assert sharded.losses[-1] < sharded.losses[0]


def test_activation_checkpointing_changes_nothing(agent: Any, config: RankConfig) -> None:
    plain = agent.run(config, 2, "plain")
    config = changed(config, training={"activation_checkpointing": "full"})
    checkpointed = agent.run(config, 2, "recomputed")
    assert checkpointed.result == plain.result


def test_tied_embeddings_train_alike_on_any_layout(agent: Any, exact: RankConfig) -> None:
    exact = changed(exact, model={"tie_embeddings": True})
    one_rank, spread = agent.run(exact, 1, "tied1"), agent.run(exact, 2, "tied2")
    assert spread.losses == pytest.approx(one_rank.losses, rel=1e-12)
    assert spread.losses[-1] < spread.losses[0]


@pytest.mark.parametrize(("data_parallel", "world_size"), [("fsdp", 2), ("ddp", 3)])
def test_restored_at_any_step_the_same_layout_ends_bitwise_the_same(
    agent: Any, config: RankConfig, data_parallel: str, world_size: int
) -> None:
    config = changed(config, parallel={"data_parallel": data_parallel})
    whole = agent.run(config, world_size, f"whole-{data_parallel}")
    for step in (1, 2, 3):
        memory = f"cut-{data_parallel}-{step}"
        before = agent.run(config, world_size, memory, stop_at=step)
        stopped = before.rows[-1]["step"]
        assert all(done["stopped"] for done in before.of("Done")) or stopped == 4
        after = agent.run(
            config, world_size, memory, generation=2, restore={"source": "memory", "step": stopped, "generation": 1}
        )
        assert after.result == whole.result
        assert [row["step"] for row in after.rows] == list(range(stopped + 1, 5))
        assert [(row["loss"], row["samples_hash"]) for row in [*before.rows, *after.rows]] == [
            (row["loss"], row["samples_hash"]) for row in whole.rows
        ]


@pytest.mark.parametrize(
    ("data_parallel", "axis"),
    [("fsdp", "dp_shard"), ("ddp", "dp_replicate"), ("zero1", "dp_replicate"), ("fsdp", "pp")],
)
def test_ranks_that_were_prepared_end_bitwise_the_same(
    agent: Any, config: RankConfig, data_parallel: str, axis: str
) -> None:
    """Restore ranks that built their model before they knew the state."""
    over = data_parallel, {axis: 2}, {}
    whole = agent.spread(config, over, f"at-once-{data_parallel}-{axis}")
    memory = f"prepared-{data_parallel}-{axis}"
    before = agent.spread(config, over, memory, stop_at=2)
    source = {"source": "memory", "step": before.rows[-1]["step"], "generation": 1}
    after = agent.spread(config, over, memory, generation=2, restore=source, is_prepared=True)
    assert len(after.of("Prepared")) == len(after.of("Joined")) == 2 and after.result == whole.result
    assert [(row["loss"], row["samples_hash"]) for row in [*before.rows, *after.rows]] == [
        (row["loss"], row["samples_hash"]) for row in whole.rows
    ]


@pytest.mark.parametrize("phase", ["forward", "backward", "optimizer", "snapshot"])
def test_a_killed_rank_costs_no_step_and_no_bit(agent: Any, config: RankConfig, phase: str) -> None:
    whole = agent.run(config, 2, "undisturbed")
    config = changed(config, faults=[fault(1, 3, "sigkill", phase)])
    faulty = agent.run(config, 2, f"faulty-{phase}", show_errors=False)
    assert faulty.codes[1] == -signal.SIGKILL
    assert [due["index"] for due in faulty.of("FaultDue")] == [0]
    # Rank 0 may have gone on to commit step 3 alone; only a step that every rank holds is a place to go back to.
    after = agent.run(
        config,
        2,
        f"faulty-{phase}",
        generation=2,
        restore={"source": "memory", "step": 2, "generation": 1},
        faults_fired=[0],
    )
    assert after.codes == [0, 0]
    assert after.result == whole.result


def test_a_fault_may_raise_or_kill_another_process(agent: Any, config: RankConfig) -> None:
    config = changed(
        config,
        faults=[
            fault(0, 1, "kill_store", "forward"),
            fault(0, 2, "raise", "backward"),
        ],
    )
    faulty = agent.run(config, 1, "raised", show_errors=False)
    assert [due["do"] for due in faulty.of("FaultDue")] == ["kill_store", "raise"]
    assert faulty.errors == ["PlannedFaultError: fault 1 of the spec: raise at step 2 in backward"]


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 3)])
def test_restored_on_another_layout_the_run_is_the_same_within_reordering(
    agent: Any, alone: dict[str, Any], exact: RankConfig, before: int, after: int
) -> None:
    one_rank, memory = run_alone(agent, alone, exact), f"resized-{before}-{after}"
    first = agent.run(exact, before, memory, stop_at=2)
    step = first.rows[-1]["step"]
    second = agent.run(
        exact,
        after,
        memory,
        generation=2,
        restore={"source": "memory", "step": step, "generation": 1},
        source_world=before,
    )
    assert second.codes == [0] * after
    assert [*first.losses, *second.losses] == pytest.approx(one_rank.losses, rel=1e-11)
    assert second.result["samples"] == one_rank.result["samples"]


def test_data_that_does_not_belong_to_the_state_is_refused(agent: Any, config: RankConfig) -> None:
    agent.run(config, 1, "other-data", stop_at=2)
    other = changed(config, training={"sequence": 8})
    again = agent.run(
        other,
        1,
        "other-data",
        generation=2,
        restore={"source": "memory", "step": 3, "generation": 1},
        show_errors=False,
    )
    assert again.codes == [1]
    assert "resume with the same files" in again.errors[0]


def test_a_loss_that_is_not_finite_ends_the_job_with_a_clear_error(agent: Any, config: RankConfig) -> None:
    config = changed(config, training={"optimizer": {"lr": 1e20, "clip_norm": None}})
    run = agent.run(config, 1, "diverged", show_errors=False)
    assert run.codes == [1]
    assert run.errors[0].startswith("NonFiniteError: step ")
