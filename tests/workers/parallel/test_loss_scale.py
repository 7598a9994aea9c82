"""The scale falls at an overflow and rises after a while; a run in float16 skips alike on all ranks of any layout."""

import math
from typing import Any

import pytest

from regroup.workers.contract.rank_config import RankConfig
from regroup.workers.parallel.loss_scale import GROWTH_INTERVAL, INITIAL, LossScale
from tests.support.inputs.rank_configs import changed

LAYOUTS = {"ddp": {"dp_replicate": 2}, "fsdp": {"dp_shard": 2}, "tp": {"tp": 2}, "pp": {"pp": 2}}


def test_it_halves_at_an_overflow_and_doubles_after_many_good_steps() -> None:
    scale = LossScale(on=True)
    scale.judge(finite=False)
    assert scale.value == INITIAL / 2
    for _ in range(GROWTH_INTERVAL - 1):
        scale.judge(finite=True)
    restored = LossScale(on=True)
    restored.load_state_dict(scale.state_dict())
    restored.judge(finite=True)
    assert restored.value == INITIAL


def test_a_permanently_broken_run_stops_skipping_steps() -> None:
    scale = LossScale(on=True)
    steps = 0
    while scale.can_fall:
        scale.judge(finite=False)
        steps += 1
    assert steps == 31
    assert not LossScale(on=False).can_fall


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "tp" else []) for name in LAYOUTS]
)
def test_all_ranks_skip_the_step_that_overflows(agent: Any, config: RankConfig, name: str) -> None:
    config = changed(config, model={"dim": 16, "heads": 2, "kv_heads": 2, "vocab_size": 260})
    config = changed(config, training={"precision": "fp16"})
    config = changed(config, training={"steps": 12})
    config = changed(config, parallel={"data_parallel": "ddp" if name == "ddp" else "fsdp"})
    entry = "plain_loop:begins_with_an_overflow"
    run = agent.run(config, 2, f"fp16-{name}", layout=LAYOUTS[name], entry=entry)
    assert run.codes == [0, 0], run.errors
    rates = [row["grad_norm"] for row in run.rows]
    first = next(number for number, norm in enumerate(rates) if norm is not None)
    assert 0 < first < 10, "some gradient was beyond float16"
    assert all(norm is not None and math.isfinite(norm) for norm in rates[first:])
    assert run.losses[-1] < run.losses[first]
    again = agent.run(
        config, 2, f"fp16-{name}", layout=LAYOUTS[name], generation=2, entry=entry,
        restore={"source": "memory", "step": 11, "generation": 1},
    )  # fmt: skip
    assert again.result == run.result, "the scale is part of the state, and ranks agree on it"
