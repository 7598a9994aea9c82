"""State restores onto any layout, and the result is the same."""

import math
import signal
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.contract.rank_config import RankConfig
from tests.support.inputs.rank_configs import changed, fault
from tests.workers.state.test_checkpoint import save

SPLIT: dict[str, tuple[str, dict[str, int], dict[str, Any]]] = {
    "zero1": ("zero1", {"dp_replicate": 2}, {}),
    "hsdp": ("fsdp", {"dp_replicate": 2, "dp_shard": 2}, {}),
    "tp": ("fsdp", {"tp": 2}, {}),
    "pp": ("fsdp", {"pp": 2}, {"schedule": "1f1b"}),
    "zbv": ("fsdp", {"pp": 2, "dp_shard": 2}, {"schedule": "zbv"}),
    "3d": ("fsdp", {"dp_shard": 2, "tp": 2, "pp": 2}, {}),
    "fsdp3": ("fsdp", {"dp_shard": 3}, {}),
    "hsdp x tp": ("fsdp", {"dp_replicate": 2, "dp_shard": 2, "tp": 2}, {}),
    "hsdp x pp": ("fsdp", {"dp_replicate": 2, "dp_shard": 2, "pp": 2}, {"schedule": "1f1b"}),
}


@pytest.fixture
def divisible(config: RankConfig) -> RankConfig:
    return changed(config, model={"layers": 4, "heads": 4, "kv_heads": 2, "vocab_size": 264})


def run(agent: Any, config: RankConfig, name: str, memory: str, **options: Any) -> Any:
    return agent.spread(config, SPLIT[name], memory, **options)


def resume(agent: Any, config: RankConfig, name: str, memory: str, step: int, **options: Any) -> Any:
    state = {"source": "memory", "step": step, "generation": 1}
    return run(agent, config, name, memory, generation=2, restore=state, **options)


KILLS = [
    ("zero1", "optimizer"),
    ("tp", "forward"),
    ("pp", "backward"),
    pytest.param("zbv", "snapshot", marks=pytest.mark.slow),
    pytest.param("3d", "backward", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "phase"), KILLS)
def test_a_killed_rank_costs_no_step_and_no_bit(agent: Any, divisible: RankConfig, name: str, phase: str) -> None:
    whole = run(agent, divisible, name, f"whole-{name}")
    divisible = changed(divisible, faults=[fault(1, 3, "sigkill", phase)])
    faulty = run(agent, divisible, name, f"faulty-{name}", show_errors=False)
    assert faulty.codes[1] == -signal.SIGKILL
    after = resume(agent, divisible, name, f"faulty-{name}", 2, faults_fired=[0])
    assert set(after.codes) == {0}
    assert after.result == whole.result
    assert [row["step"] for row in after.rows] == [3, 4]
    assert [(row["loss"], row["samples_hash"]) for row in after.rows] == [
        (row["loss"], row["samples_hash"]) for row in whole.rows[2:]
    ]


CHANGES = [
    ("3d", "fsdp3"),
    ("fsdp3", "zbv"),
    ("zero1", "hsdp"),
    ("hsdp", "tp"),
    pytest.param("hsdp x tp", "hsdp x pp", marks=pytest.mark.slow),
    pytest.param("hsdp x pp", "hsdp x tp", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_the_state_in_memory_fits_any_other_layout(agent: Any, divisible: RankConfig, before: str, after: str) -> None:
    divisible = changed(divisible, training={"precision": "fp64"})
    memory = f"from-{before}-to-{after}"
    whole = run(agent, divisible, before, memory)
    ranks = math.prod(SPLIT[before][1].values())
    resumed = resume(agent, divisible, after, memory, 3, source_world=ranks, from_another_split=True)
    assert set(resumed.codes) == {0}, resumed.errors
    assert resumed.losses == pytest.approx(whole.losses[3:], rel=1e-11)
    assert resumed.result["samples"] == whole.result["samples"]
    assert resumed.result["parameter_count"] == whole.result["parameter_count"]


@pytest.mark.parametrize(("before", "after"), [pytest.param("3d", "zero1", marks=pytest.mark.slow), ("zbv", "pp")])
def test_so_does_a_checkpoint(agent: Any, divisible: RankConfig, tmp_path: Path, before: str, after: str) -> None:
    divisible = changed(divisible, training={"precision": "fp64"})
    memory = f"saved-{before}-for-{after}"
    whole = run(agent, divisible, before, memory)
    directory = save(agent, memory, math.prod(SPLIT[before][1].values()), 3, tmp_path / "checkpoint")
    state = {"source": "checkpoint", "step": 3, "generation": 1}
    resumed = run(
        agent, divisible, after, f"{memory}-resumed", generation=2, checkpoint_dir=str(directory), restore=state
    )
    assert set(resumed.codes) == {0}, resumed.errors
    assert resumed.losses == pytest.approx(whole.losses[3:], rel=1e-11)


def test_a_pipeline_reports_its_idle_time_and_its_slowest_stage(agent: Any, divisible: RankConfig) -> None:
    rows = run(agent, divisible, "pp", "pipeline-rows").rows
    for row in rows:
        assert 0 < row["extra"]["pipeline_idle"] < 1 <= row["extra"]["slowest_stage"] <= 2
        assert row["extra"]["bubble"] == pytest.approx(1 / (8 + 1))
    assert rows[1]["extra"]["send"] == 8, "the first stage, of eight micro-batches"


def test_the_second_step_reports_the_collectives_of_each_layout(agent: Any, divisible: RankConfig) -> None:
    before, during, after, _ = (row["extra"] for row in run(agent, divisible, "hsdp", "collectives").rows)
    assert during["reduce_scatter"] == during["all_reduce"] == 4 + 1, "blocks, and the root"
    assert during["reduce_scatter_bytes"] == 2 * during["all_reduce_bytes"], "a shard is summed over replicas"
    assert not {key for row in (before, after) for key in row if key.startswith(("reduce", "all", "send", "recv"))}


def test_steps_report_memory_and_waiting_and_from_the_third_on_utilization(agent: Any, divisible: RankConfig) -> None:
    rows = [row["extra"] for row in run(agent, divisible, "fsdp3", "facts").rows]
    for row in rows:
        assert 50e6 < row["peak_bytes"] < 10e9 and row["peak_rank"] in (0, 1, 2)
        assert 0 <= row["exposed_communication"] < 1
    assert ["mfu" in row for row in rows] == [False, False, True, True]
    assert all(0 < row["mfu"] < 1 for row in rows[2:])


@pytest.mark.parametrize("name", ["zero1", "hsdp"])
def test_summed_in_bf16_every_layout_stays_near(agent: Any, divisible: RankConfig, name: str) -> None:
    exact = run(agent, divisible, name, f"summed-fp32-{name}")
    divisible = changed(divisible, training={"reduce": "bf16"})
    rough = run(agent, divisible, name, f"summed-bf16-{name}")
    assert rough.losses == pytest.approx(exact.losses, rel=0.02)
    assert rough.losses != exact.losses


@pytest.mark.parametrize(
    "name", [pytest.param("tp", marks=pytest.mark.slow), "zbv", pytest.param("3d", marks=pytest.mark.slow)]
)
def test_in_bf16_every_layout_stays_near_float32(agent: Any, divisible: RankConfig, name: str) -> None:
    exact = run(agent, divisible, "fsdp3", "fp32")
    divisible = changed(divisible, training={"precision": "bf16"})
    rough = run(agent, divisible, name, f"bf16-{name}")
    assert rough.losses == pytest.approx(exact.losses, rel=0.02)
    assert rough.losses != exact.losses
