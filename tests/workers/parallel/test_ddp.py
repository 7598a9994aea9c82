"""Buckets are the same from the first step of every process on: a restart sums in the same order."""

from typing import Any

import pytest

from regroup.workers.contract.rank_config import ParallelConfig, RankConfig
from tests.support.inputs.rank_configs import changed, fault


@pytest.fixture
def many_buckets(config: RankConfig) -> RankConfig:
    return changed(
        config,
        model={"dim": 192, "heads": 4, "kv_heads": 4, "ffn_dim": 512},  # about a million parameters
        training={"validate_every": None},
        parallel=ParallelConfig("ddp", bucket_mib=1),
    )


@pytest.mark.parametrize("done", [1, 2, 3])
def test_a_restart_at_any_step_is_bitwise_the_same(agent: Any, many_buckets: RankConfig, done: int) -> None:
    many_buckets = changed(many_buckets, training={"steps": 4})
    whole = agent.run(many_buckets, 3, "buckets-whole")
    kill = fault(1, done + 1, "sigkill", "optimizer")
    agent.run(changed(many_buckets, faults=[kill]), 3, f"buckets-{done}", show_errors=False)
    state = {"source": "memory", "step": done, "generation": 1}
    after = agent.run(many_buckets, 3, f"buckets-{done}", generation=2, restore=state)
    assert after.result == whole.result
    assert whole.rows[1]["extra"]["all_reduce"] > 1, "there is more than one bucket"


@pytest.mark.parametrize("data_parallel", ["ddp", "zero1"])
def test_a_model_with_unused_parameters_trains_with_find_unused_parameters(
    agent: Any, config: RankConfig, data_parallel: str
) -> None:
    parallel = ParallelConfig(data_parallel, find_unused_parameters=True)
    config = changed(config, model={"layers": 3}, parallel=parallel)
    entry = "plain_loop:leaves_blocks_out"
    layout = {"dp_replicate": 2}
    run = agent.run(config, 2, f"parts-{data_parallel}", entry=entry, layout=layout)
    assert run.codes == [0, 0], run.errors
    assert run.result["moved"] == ["1", "2"], "parameters that one rank used change; unused ones do not"


def test_a_model_with_unused_parameters_gets_an_error_with_the_remedy(agent: Any, config: RankConfig) -> None:
    config = changed(config, model={"layers": 3}, parallel=ParallelConfig("ddp"))
    layout, entry = {"dp_replicate": 2}, "plain_loop:leaves_blocks_out"
    run = agent.run(config, 2, "refused", entry=entry, layout=layout, show_errors=False)
    assert any("find_unused_parameters" in error for error in run.errors)
