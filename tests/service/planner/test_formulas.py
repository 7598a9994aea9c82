"""The formulas reproduce published numbers, and correct the wrong claims of the seed documents."""

import pytest

from regroup.service.planner.formulas import (
    MEGATRON_ADAM,
    MIXED_ADAM,
    Sharding,
    StateBytes,
    bubble_share,
    failures_goodput,
    gpt_step_flops,
    gradient_traffic,
    hierarchical_all_reduce_s,
    in_flight,
    layer_activation_bytes,
    ring_all_reduce_s,
    ring_half_s,
    ring_sent_bytes,
    state_bytes,
    tree_all_reduce_s,
)
from regroup.service.planner.model_shape import PRESETS

GB = 1e9
SEVEN = 7e9
GPT3 = 175e9


@pytest.mark.parametrize(("sharding", "gigabytes"), [("ddp", 112), ("zero1", 38.5), ("zero2", 26.25), ("fsdp", 14)])
def test_states_of_7b_on_8_ranks_equal_the_values_of_the_seeds(sharding: Sharding, gigabytes: float) -> None:
    assert state_bytes(SEVEN, 8, sharding) / GB == gigabytes


@pytest.mark.parametrize(
    ("stages", "micro_batches", "share"),
    [(4, 4, 3 / 7), (4, 16, 3 / 19), (4, 32, 3 / 35), (8, 32, 7 / 39), (8, 4, 7 / 11), (4, 1, 0.75), (8, 1, 0.875)],
)
def test_bubbles_equal_the_values_of_the_seeds(stages: int, micro_batches: int, share: float) -> None:
    assert bubble_share(stages, micro_batches) == pytest.approx(share)
    assert bubble_share(stages, micro_batches, "gpipe") == pytest.approx(share)


def test_a_ring_all_reduce_has_the_volume_of_the_seeds() -> None:
    assert ring_sent_bytes(1.0, 8) == 1.75
    assert ring_sent_bytes(1.0, 16) == 1.875
    assert ring_all_reduce_s(14 * GB, 8, 235 * GB) == pytest.approx(0.104, abs=0.001)
    assert ring_all_reduce_s(2 * GB, 8, 25 * GB) == pytest.approx(0.14)
    assert ring_all_reduce_s(2 * GB, 8, 12.5 * GB) == pytest.approx(0.28)


def test_one_all_reduce_is_a_reduce_scatter_and_an_all_gather() -> None:
    assert ring_all_reduce_s(GB, 8, GB, 1e-6) == 2 * ring_half_s(GB, 8, GB, 1e-6)
    assert ring_all_reduce_s(GB, 1, GB, 1e-6) == tree_all_reduce_s(GB, 1, GB, 1e-6) == 0


def test_trees_win_for_small_messages_and_hierarchies_for_slow_networks() -> None:
    assert tree_all_reduce_s(1e3, 1024, GB, 1e-5) < ring_all_reduce_s(1e3, 1024, GB, 1e-5)
    assert tree_all_reduce_s(1e9, 8, GB, 0) > ring_all_reduce_s(1e9, 8, GB, 0)
    assert hierarchical_all_reduce_s(GB, 8, 4, 200 * GB, 10 * GB) < ring_all_reduce_s(GB, 32, 10 * GB)


def test_activations_equal_the_formula_of_korthikanti() -> None:
    tokens, hidden, heads, sequence = 2048, 12288, 96, 2048
    unit = tokens * hidden
    scores = 5 * heads * sequence / hidden
    assert layer_activation_bytes(tokens, hidden, heads, sequence) == unit * (34 + scores)
    assert layer_activation_bytes(tokens, hidden, heads, sequence, 8) == unit * (10 + 3 + scores / 8)
    split = layer_activation_bytes(tokens, hidden, heads, sequence, 8, sequence_parallel=True)
    assert split == pytest.approx(unit * (34 + scores) / 8)
    assert layer_activation_bytes(tokens, hidden, heads, sequence, flash=True) == unit * 34
    assert layer_activation_bytes(tokens, hidden, heads, sequence, checkpointing="full") == unit * 2


def test_1f1b_retains_a_micro_batch_per_later_stage_and_gpipe_retains_all() -> None:
    assert [in_flight(4, stage, 16) for stage in range(4)] == [4, 3, 2, 1]
    assert in_flight(4, 0, 16, "gpipe") == 16
    assert in_flight(4, 0, 2) == 2
    assert in_flight(4, 0, 16, "interleaved_1f1b", 2) == pytest.approx(4 * (1 + 3 / (4 * 2)))
    assert in_flight(1, 0, 16) == 1


def test_a_gpt_step_has_the_operations_of_the_megatron_paper() -> None:
    model = PRESETS["gpt3-175b"]
    counted = gpt_step_flops(1536, 2048, model.layers, model.hidden, model.vocabulary, recompute=False)
    assert model.step_flops(1536, 2048) == pytest.approx(counted)
    redone = gpt_step_flops(1536, 2048, model.layers, model.hidden, model.vocabulary, recompute=True)
    assert 1.3 < redone / counted < 4 / 3


def test_goodput_falls_with_devices() -> None:
    few = failures_goodput(10, 50_000 * 3600, 8, 120)
    many = failures_goodput(10, 50_000 * 3600, 16384, 120)
    assert 0.98 < many < few < 1


# Wrong claims of the seed documents. Each test names the claim and checks the correct number.


def test_seed_claims_28_gb_of_gradients_for_7b_which_needs_32_bits() -> None:
    assert SEVEN * MIXED_ADAM.gradient / GB == 14
    assert SEVEN * MEGATRON_ADAM.gradient / GB == 28


def test_seed_claims_12_bytes_per_parameter_which_omits_the_16_bit_copies() -> None:
    assert MIXED_ADAM.optimizer == 12
    assert 10e9 * MIXED_ADAM.total / GB == 160
    assert MEGATRON_ADAM.total == 18
    assert StateBytes(2, 2, 8).total == 12


def test_seed_claims_28_gb_over_nvlink_in_82_ms_and_1_gb_in_1_7_ms() -> None:
    """Correct a claim that counts both directions (600 GB/s) and omits the factor of the ring."""
    assert ring_all_reduce_s(28 * GB, 8, 235 * GB) == pytest.approx(0.209, abs=0.001)
    assert ring_all_reduce_s(2**30, 8, 229 * GB) == pytest.approx(0.0082, abs=0.0001)


def test_seed_claims_that_87_5_percent_of_the_gradients_are_sent() -> None:
    assert ring_sent_bytes(1.0, 8) / 2 == 0.875, "a share of the limit 2S, not of S"


def test_seed_claims_that_ring_time_grows_with_the_ranks() -> None:
    few, many = (ring_all_reduce_s(GB, ranks, GB) for ranks in (8, 1024))
    assert many / few < 1.15


def test_seed_claims_that_1f1b_reduces_the_bubble() -> None:
    assert bubble_share(8, 32, "1f1b") == bubble_share(8, 32, "gpipe")
    assert bubble_share(8, 32, "interleaved_1f1b", 2) < bubble_share(8, 32, "1f1b")


def test_seed_claims_that_naive_4_stages_idle_half_the_time() -> None:
    assert bubble_share(4, 1) == 0.75
    assert 1 - bubble_share(8, 1) == pytest.approx(1 / 8), "not 1 - 1/k = 0 at k = 1"


def test_seed_claims_that_175b_fits_16_gpus_under_zero_3() -> None:
    assert state_bytes(GPT3, 16, "fsdp") / GB == 175, "not 87.5"
    assert state_bytes(GPT3, 1, "ddp") / GB == 2800


def test_seed_claims_16_gb_of_optimizer_for_gpt_3_at_8_by_8() -> None:
    held = GPT3 / 64
    assert held * MIXED_ADAM.optimizer / GB == pytest.approx(32.8, abs=0.1)
    assert state_bytes(held, 1, "ddp") / GB == pytest.approx(43.75)
    assert state_bytes(held, 16, "zero1") / GB == pytest.approx(13, abs=0.1)


def test_seed_claims_15_gb_for_30b_at_tp_8_and_dp_4() -> None:
    held = 30e9 / 8
    assert state_bytes(held, 4, "ddp") / GB == 60
    assert state_bytes(held, 4, "zero1") / GB == pytest.approx(26.25)
    assert state_bytes(held, 4, "fsdp") / GB == 15


def test_seed_claims_that_zero_1_and_2_save_three_and_four_times() -> None:
    saved = [state_bytes(SEVEN, 8, "ddp") / state_bytes(SEVEN, 8, each) for each in ("zero1", "zero2")]
    assert saved == pytest.approx([2.9, 4.27], abs=0.02)


def test_seed_claims_that_checkpointing_saves_60_to_70_percent() -> None:
    whole = layer_activation_bytes(2048, 12288, 96, 2048, 8, sequence_parallel=True)
    kept = layer_activation_bytes(2048, 12288, 96, 2048, 8, sequence_parallel=True, checkpointing="full")
    assert kept / whole < 0.1


def test_zero_3_sends_50_percent_more() -> None:
    assert gradient_traffic("fsdp") / gradient_traffic("ddp") == 1.5
    assert gradient_traffic("fsdp", reshard=False) == gradient_traffic("zero1") == 2
