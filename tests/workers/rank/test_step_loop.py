"""A plain loop of a user's own: restored bitwise, on any layout, with exact samples; misuse is explained."""

import re
import signal
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from regroup.workers.contract.rank_config import (
    LossSpikeAction,
    LossSpikeConfig,
    RankConfig,
    RepeatedSpike,
    SnapshotConfig,
    TrainingConfig,
)
from tests.support.inputs.rank_configs import changed, fault
from tests.workers.shard_writer import FINISH, SAVE

ENTRY = "regroup.workers.rank.user_function:train"


@pytest.fixture
def config() -> RankConfig:
    """Six steps of eight micro-batches."""
    return RankConfig(
        training=TrainingConfig(global_batch=16, micro_batch=2, steps=6),
        function="function_loops:train",
        args={"wrap": "fsdp"},
        seed=7,
        snapshot=SnapshotConfig(every_steps=1),
    )


@pytest.fixture
def run(agent: Any) -> Any:
    """Runs a generation of the function that the config names."""

    def start(config: RankConfig, world_size: int, memory: str, **options: Any) -> Any:
        axis = "dp_shard" if config.args.get("wrap") == "fsdp" else "dp_replicate"
        return agent.run(config, world_size, f"loop-{memory}", entry=ENTRY, layout={axis: world_size}, **options)

    return start


def memory_at(step: int) -> dict[str, Any]:
    return {"source": "memory", "step": step, "generation": 1}


@pytest.mark.parametrize("wrap", ["fsdp", "ddp"])
def test_a_killed_rank_costs_no_step_and_no_bit(run: Any, config: RankConfig, wrap: str) -> None:
    config = changed(config, args={"wrap": wrap})
    whole = run(config, 2, f"whole-{wrap}")
    assert whole.codes == [0, 0]
    assert len(whole.result["parameters"]) == len(whole.result["samples"]) == 64
    for phase in ("forward", "optimizer", "snapshot"):
        config = changed(config, faults=[fault(1, 4, "sigkill", phase)])
        faulty = run(config, 2, f"faulty-{wrap}-{phase}", show_errors=False)
        assert faulty.codes[1] == -signal.SIGKILL
        after = run(config, 2, f"faulty-{wrap}-{phase}", generation=2, restore=memory_at(3), faults_fired=[0])
        assert after.result == whole.result
        assert after.losses == whole.losses[3:]


@pytest.mark.parametrize("wrap", ["fsdp", "ddp"])
def test_clipping_and_adamw_on_shards_compute_what_torchs_do(run: Any, config: RankConfig, wrap: str) -> None:
    config = changed(config, function="function_loops:clipped")
    both = []
    for on_shards in (False, True):
        config = changed(config, args={"wrap": wrap, "on_shards": on_shards})
        both.append(run(config, 2, f"clipped-{wrap}-{on_shards}"))
    torchs, ours = both
    assert torchs.codes == ours.codes == [0, 0]
    assert ours.losses == pytest.approx(torchs.losses, rel=1e-10)
    norms = [[row["grad_norm"] for row in done.rows] for done in both]
    assert norms[1] == pytest.approx(norms[0], rel=1e-10) and max(norms[0]) > 0.3


def test_a_functions_gradient_norm_that_stands_out_gives_its_step_up(run: Any, config: RankConfig) -> None:
    config = changed(config, function="function_loops:clipped")
    config = changed(config, args={"on_shards": True})
    config = changed(config, training={"steps": 24, "global_batch": 4})
    whole = run(config, 2, "even-norms")
    assert whole.codes == [0, 0]
    config = changed(config, faults=[fault(1, 22, "spike_gradient", "forward")])
    config = changed(config, loss_spike=LossSpikeConfig(LossSpikeAction.ROLLBACK))
    faulty = run(config, 2, "wild-norm", show_errors=False)
    assert faulty.codes == [1, 1]
    details = faulty.of("Failed")[0]["error"]["details"]
    assert (details["step"], details["of"]) == (22, "gradient norm")
    config = changed(config, loss_spike={"repeated": [RepeatedSpike(22, "gradient norm", details["limit"])]})
    after = run(config, 2, "wild-norm", generation=2, restore=memory_at(21), faults_fired=[0])
    assert after.result == whole.result


def test_replicas_of_a_function_are_compared_where_it_asks(run: Any, config: RankConfig) -> None:
    assert run(config, 2, "compared-fsdp", verify_replicas=True).codes == [0, 0]
    config = changed(config, args={"wrap": "ddp"})
    whole = run(config, 3, "compared", verify_replicas=True)
    assert whole.codes == [0, 0, 0]
    config = changed(config, faults=[fault(1, 3, "flip_bit", "forward")])
    faulty = run(config, 3, "odd", show_errors=False, verify_replicas=True)
    assert faulty.codes == [1, 1, 1]
    assert faulty.of("Failed")[0]["error"]["details"]["outlier_ranks"] == [1]
    after = run(config, 3, "odd", generation=2, restore=memory_at(2), faults_fired=[0], verify_replicas=True)
    assert after.result == whole.result


def test_ranks_that_remember_different_things_are_not_compared_in_them(run: Any, config: RankConfig) -> None:
    config = replace(config, function="function_loops:shares_work", args={})
    shared = run(config, 2, "shares-work", verify_replicas=True)
    assert shared.codes == [0, 0]
    assert len(shared.rows) == 6


def test_a_stop_ends_the_loop_after_a_step_that_survives(run: Any, config: RankConfig) -> None:
    whole = run(config, 3, "not-stopped")
    before = run(config, 3, "stopped", stop_at=2)
    step = before.rows[-1]["step"]
    assert [(done["step"], done["stopped"]) for done in before.of("Done")] == [(step, True)] * 3
    after = run(config, 3, "stopped", generation=2, restore=memory_at(step))
    assert after.result == whole.result


@pytest.mark.parametrize(("before", "after"), [(4, 2), (4, 3), (1, 4)])
def test_every_layout_sees_the_same_samples_and_computes_the_same(
    run: Any, config: RankConfig, before: int, after: int
) -> None:
    # On three ranks the eight micro-batches do not divide: one of the nine that run is a dummy.
    whole = run(config, 2, "layouts")
    first = run(config, before, f"layouts-{before}-{after}", stop_at=2)
    step = first.rows[-1]["step"]
    second = run(
        config,
        after,
        f"layouts-{before}-{after}",
        generation=2,
        restore={**memory_at(step), "world_size": before},
        source_world=before,
    )
    assert second.codes == [0] * after
    rows = [*first.rows, *second.rows]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [row["samples_hash"] for row in rows] == [row["samples_hash"] for row in whole.rows]
    assert {row["samples"] for row in rows} == {16}
    assert [row["loss"] for row in rows] == pytest.approx(whole.losses, rel=1e-10)
    assert second.result["samples"] == whole.result["samples"]
    assert second.result["rate"] == pytest.approx(whole.result["rate"])
    assert not first.of("SourceReleaseRequest")
    released = [each["rank"] for each in second.of("SourceReleaseRequest")]
    assert sorted(released) == list(range(after)), "each rank asks once"
    own = [each for each in second.messages if each.get("rank") == 0 or each["type"] == "StepRow"]
    kinds = [each["type"] for each in own if each["type"] in ("StepRow", "SourceReleaseRequest")]
    assert kinds.index("SourceReleaseRequest") == 1, "during the step after its first snapshot"


def test_several_modules_optimizers_and_averaged_weights_survive(run: Any, config: RankConfig) -> None:
    config = changed(config, function="function_loops:averaged")
    whole = run(config, 2, "averaged")
    for ranks in (2, 3):
        memory = f"averaged-{ranks}"
        step = run(config, 2, memory, stop_at=3).rows[-1]["step"]
        after = run(config, ranks, memory, generation=2, restore=memory_at(step), source_world=2)
        assert after.codes == [0] * ranks
        assert [row["samples_hash"] for row in after.rows] == [row["samples_hash"] for row in whole.rows[step:]]
        if ranks == 2:  # only the last micro-batch is reported here, and three ranks have another last one
            assert after.result == whole.result
            assert after.losses == whole.losses[step:]


def test_a_checkpoint_of_a_function_loads_on_another_layout(
    run: Any, agent: Any, config: RankConfig, tmp_path: Any
) -> None:
    whole = run(config, 4, "saved-whole")
    before = run(config, 4, "saved", stop_at=2)
    step = before.rows[-1]["step"]
    directory = str(tmp_path / "checkpoint")
    part = agent.task(
        SAVE,
        {"directory": directory, "shards": [{"rank": rank} for rank in range(4)], "differing": []},
        memory="loop-saved",
        restore=memory_at(step),
        ranks=[0, 1, 2, 3],
    )
    agent.task(FINISH, {"directory": directory}, parts=[part])
    for world_size in (2, 3, 4):
        resumed = run(
            config,
            world_size,
            f"resumed-{world_size}",
            restore={"source": "checkpoint", "step": step, "generation": 1},
            checkpoint_dir=directory,
        )
        assert resumed.codes == [0] * world_size
        assert resumed.result["samples"] == whole.result["samples"]
        assert resumed.losses == pytest.approx(whole.losses[step:], rel=1e-10)
    assert resumed.result["parameters"] == whole.result["parameters"]


def test_what_is_reported_arrives(run: Any, config: RankConfig) -> None:
    rows = run(config, 2, "reported").rows
    assert [row["extra"] for row in rows] == [{"rank": 0.0, "step": float(step)} for step in range(1, 7)]
    assert {row["tokens"] for row in rows} == {6}
    assert rows[0]["learning_rate"] == 0.05
    assert rows[1]["learning_rate"] < 0.05


def test_a_job_with_its_own_data_reports_what_it_knows(run: Any, config: RankConfig) -> None:
    config = changed(config, function="function_loops:own_data")
    config = replace(config, training=TrainingConfig(steps=3))
    rows = run(config, 2, "own-data").rows
    assert [(row["loss"], row["samples"], row["extra"]) for row in rows] == [
        (float(step), None, {"learning_quality": 0.5}) for step in (1, 2, 3)
    ]


def test_a_step_that_is_left_is_not_committed(run: Any, config: RankConfig) -> None:
    config = changed(config, function="function_loops:own_data")
    config = changed(config, args={"break_at": 4})
    left = run(config, 2, "left")
    assert [row["step"] for row in left.rows] == [1, 2, 3]
    assert [(done["step"], done["stopped"]) for done in left.of("Done")] == [(3, False)] * 2


def test_a_function_sees_a_request_to_stop(run: Any, config: RankConfig) -> None:
    config = changed(config, function="function_loops:until_stopped")
    config = replace(config, training=TrainingConfig(steps=100_000))
    stopped = run(config, 1, "stopped", stop_at=3)
    # The function waits in step 4 for the request; all ranks agree on it at the end of that step.
    assert [(done["step"], done["stopped"]) for done in stopped.of("Done")] == [(4, True)]


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("untracked", r"StateError: 'optimizer' updates a parameter of shape \(1, 2\)"),
        ("object", r"StateError: state:thing\.deep\.0\.inside is a builtins\.object"),
        ("twice", r"ValueError: 'model' is tracked already"),
        ("late", r"RuntimeError: track\(\) after the first step"),
        ("total", r"ValueError: run\.steps\(9\), but the spec says training\.steps=6"),
        ("nan", r"NonFiniteError: step 1: loss nan: it or the gradient norm is not finite on 1 of 2 ranks"),
        ("half", r"RuntimeError: step 1 took 8 of its 16 samples"),
        ("again", r"RuntimeError: run\.micro_batches\(\) was called twice in one step"),
        ("length", r"DataError: the position in the data was counted over 16 records, but the dataset has 8"),
    ],
)
def test_misuse_is_explained(run: Any, config: RankConfig, how: str, error: str) -> None:
    config = changed(config, function="function_loops:broken")
    config = replace(config, args={"how": how})
    wrong = run(config, 2, f"broken-{how}", show_errors=False)
    assert wrong.codes == [1, 1]
    assert re.match(error, wrong.errors[0]), wrong.errors


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("function_loops:nothing", "module function_loops has no function 'nothing'"),
        ("function_loops:RECORDS", "module function_loops has no function 'RECORDS'"),
        ("no_such_module:train", "no module no_such_module in "),
    ],
)
def test_a_function_that_is_not_there_is_named(run: Any, config: RankConfig, function: str, error: str) -> None:
    config = changed(config, function=function)
    wrong = run(config, 1, "missing", show_errors=False)
    assert wrong.codes == [1]
    assert error in wrong.errors[0]


def test_importing_regroup_is_light() -> None:
    code = "import regroup, sys; assert not {'torch', 'ray'} & set(sys.modules); print(regroup.Context.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "Context"
