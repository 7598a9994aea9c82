"""Collectives of each kind of parallelism, by number and bytes."""

import math
from dataclasses import replace
from typing import Any

import pytest

from regroup.workers.contract.rank_config import ParallelConfig, RankConfig
from regroup.workers.parallel.collective_counter import wire_bytes
from tests.support.inputs.rank_configs import changed

LAYERS = 4


@pytest.fixture
def sized(config: RankConfig) -> RankConfig:
    """Matrices outweigh the rest, so that formulas in the number of parameters hold within per cents."""
    return changed(config, model={"dim": 32, "layers": LAYERS, "heads": 4, "kv_heads": 4, "ffn_dim": 64})


def ranks_of(
    agent: Any, config: RankConfig, kind: str, layout: dict[str, int], args: Any = None, **strategy: Any
) -> list[dict[str, Any]]:
    config = replace(config, parallel=ParallelConfig(kind, **strategy), args=args or {})
    ranks = math.prod(layout.values())
    run = agent.run(config, ranks, f"counted-{ranks}", entry="counting_loop:counted", layout=layout)
    assert run.codes == [0] * ranks, run.errors
    return run.result["ranks"]


def test_ddp_sums_each_gradient_once_a_step_however_many_micro_batches(agent: Any, sized: RankConfig) -> None:
    for count in (2, 8):
        for rank in ranks_of(agent, sized, "ddp", {"dp_replicate": 2}, {"micro_batches": count}):
            size = rank["parameters"] * 4
            assert set(rank["calls"]) == {"all_reduce"}
            # In addition to gradients: which parameters were used.
            sent = wire_bytes("all_reduce", rank["bytes"]["all_reduce"], 2)
            assert sent == pytest.approx(2 * (2 - 1) / 2 * size, rel=0.01)


def test_small_buckets_are_more_and_sum_no_more_bytes(agent: Any, sized: RankConfig) -> None:
    sized = changed(sized, model={"dim": 256, "ffn_dim": 512})  # 2.9 million parameters
    few, many = (
        ranks_of(agent, sized, "ddp", {"dp_replicate": 2}, {"micro_batches": 2}, bucket_mib=size)[0] for size in (25, 1)
    )
    assert many["calls"]["all_reduce"] > 2 * few["calls"]["all_reduce"]
    assert many["bytes"] == few["bytes"]


def test_zero1_also_gathers_what_it_updated(agent: Any, sized: RankConfig) -> None:
    for rank in ranks_of(agent, sized, "zero1", {"dp_replicate": 2}):
        size = rank["parameters"] * 4
        assert rank["bytes"]["all_reduce"] == pytest.approx(size, rel=0.01)
        assert rank["calls"]["all_gather"] == 2, "matrices, and vectors"
        assert rank["bytes"]["all_gather"] == pytest.approx(size, rel=0.05)


@pytest.mark.parametrize(("kind", "gathers"), [("fsdp", 2 * LAYERS + 1), ("zero2", LAYERS + 1)])
def test_shards_are_gathered_and_reduced_by_block(agent: Any, sized: RankConfig, kind: str, gathers: int) -> None:
    # One micro-batch a rank. The root, with embedding and head, stays gathered through the backward.
    for rank in ranks_of(agent, sized, kind, {"dp_shard": 2}, {"micro_batches": 2}):
        assert rank["calls"] == {"all_gather": gathers, "reduce_scatter": LAYERS + 1}
        assert rank["bytes"]["reduce_scatter"] == pytest.approx(rank["parameters"] * 4, rel=0.05)


def test_bf16_gathers_half_the_bytes_and_sums_in_float32(agent: Any, sized: RankConfig) -> None:
    sized = changed(sized, training={"precision": "bf16"})
    for rank in ranks_of(agent, sized, "zero2", {"dp_shard": 2}, {"micro_batches": 2}):
        assert rank["bytes"]["all_gather"] == pytest.approx(rank["parameters"] * 2, rel=0.05)
        assert rank["bytes"]["reduce_scatter"] == pytest.approx(rank["parameters"] * 4, rel=0.05)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_gradients_summed_in_bf16_are_half_the_bytes(agent: Any, sized: RankConfig, kind: str) -> None:
    sized = changed(sized, training={"reduce": "bf16"})
    layout, collective = {"ddp": ({"dp_replicate": 2}, "all_reduce"), "fsdp": ({"dp_shard": 2}, "reduce_scatter")}[kind]
    for rank in ranks_of(agent, sized, kind, layout, {"micro_batches": 2}):
        assert rank["bytes"][collective] == pytest.approx(rank["parameters"] * 2, rel=0.05)
        assert rank["dtypes"] == ["torch.float32"]


def test_accumulation_reduces_once(agent: Any, sized: RankConfig) -> None:
    for rank in ranks_of(agent, sized, "fsdp", {"dp_shard": 2}, {"micro_batches": 8}):
        assert rank["calls"]["reduce_scatter"] == LAYERS + 1


def test_tensor_parallelism_takes_four_all_reduces_a_layer(agent: Any, sized: RankConfig) -> None:
    one, two = (
        ranks_of(agent, sized, "fsdp", {"tp": 2}, {"micro_batches": count}, sequence_parallel=False)[0]["calls"]
        for count in (1, 2)
    )
    # In addition to the layers: the embedding's sum, the head's gradient, and what the loss needs of all logits.
    beside = two["all_reduce"] - one["all_reduce"] - 4 * LAYERS
    assert beside == 2 + 3
    split = ranks_of(agent, sized, "fsdp", {"tp": 2}, {"micro_batches": 1})[0]["calls"]
    assert split["all_reduce"] < 4 * LAYERS < split["reduce_scatter"] + split["all_gather"]


def test_a_pipeline_talks_to_neighbours_alone(agent: Any, sized: RankConfig) -> None:
    ranks = ranks_of(agent, sized, "fsdp", {"pp": 4}, {"micro_batches": 8})
    for number, rank in enumerate(ranks):
        edges = (number > 0) + (number < 3)
        assert (rank["calls"]["send"], rank["calls"]["recv"]) == (8 * edges, 8 * edges)
        assert rank["bytes"]["send"] == 8 * edges * 2 * 16 * 32 * 4, "batch × sequence × width × bytes"


def test_1f1b_holds_no_more_micro_batches_than_stages_where_gpipe_holds_all(agent: Any, sized: RankConfig) -> None:
    live = {
        schedule: [rank["live"] for rank in ranks_of(agent, sized, "fsdp", {"pp": 4}, schedule=schedule)]
        for schedule in ("1f1b", "gpipe")
    }
    assert live == {"1f1b": [4, 3, 2, 1], "gpipe": [8, 8, 8, 8]}


@pytest.mark.parametrize(
    ("kind", "layout", "formula"),
    [
        ("ddp", {"dp_replicate": 2}, lambda p: 16 * p),
        ("zero1", {"dp_replicate": 2}, lambda p: 8 * p + 8 * p / 2),
        ("fsdp", {"dp_shard": 4}, lambda p: 16 * p / 4),
        ("fsdp", {"dp_replicate": 2, "dp_shard": 2}, lambda p: 16 * p / 2),
        ("fsdp", {"dp_shard": 2, "tp": 2}, lambda p: 16 * p / 4),
    ],
)
def test_bytes_of_a_rank_are_those_of_the_formula(
    agent: Any, sized: RankConfig, kind: str, layout: dict[str, int], formula: Any
) -> None:
    for precision in ("fp32", "bf16"):  # master copies, gradients and moments stay in float32
        sized = changed(sized, training={"precision": precision})
        for rank in ranks_of(agent, sized, kind, layout):
            held = rank["parameter_bytes"] + rank["gradient_bytes"] + rank["optimizer_bytes"]
            assert held == pytest.approx(formula(rank["parameters"]), rel=0.05)
            assert rank["dtypes"] == ["torch.float32"]
