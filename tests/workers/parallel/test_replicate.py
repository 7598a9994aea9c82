"""Buckets are the same from the first step of every process on: a restart sums in the same order."""

from typing import Any

import pytest

Config = dict[str, Any]


@pytest.fixture
def many_buckets(config: Config) -> Config:
    config["model"] |= {"dim": 192, "heads": 4, "kv_heads": 4, "ffn_dim": 512}  # about a million parameters
    config["training"] |= {"validate_every": None}
    return config | {"data_parallel": "ddp", "strategy": {"bucket_mib": 1}}


@pytest.mark.parametrize("done", [1, 2, 3])
def test_a_restart_at_any_step_is_bitwise_the_same(agent: Any, many_buckets: Config, done: int) -> None:
    many_buckets["training"]["steps"] = 4
    whole = agent.run(many_buckets, 3, "buckets-whole")
    fault = {"at": {"rank": 1, "step": done + 1, "phase": "optimizer"}, "do": "sigkill"}
    agent.run({**many_buckets, "faults": [fault]}, 3, f"buckets-{done}", show_errors=False)
    state = {"source": "memory", "step": done, "generation": 1}
    after = agent.run(many_buckets, 3, f"buckets-{done}", generation=2, restore=state)
    assert after.result == whole.result
    assert whole.rows[1]["extra"]["all_reduce"] > 1, "there is more than one bucket"
