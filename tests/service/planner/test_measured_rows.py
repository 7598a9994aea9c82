"""Measured rows: a row of text becomes a configuration. Missing values are listed, contradictions are refused."""

import pytest

from regroup.service.planner.measured_rows import RowError, read_row, stack_of

ROW = {
    "source": "somewhere 1.2", "model": "GPT", "params_b": "18.4", "layers": "40", "hidden": "6144", "heads": "48",
    "seq": "2048", "gpu": "A100-80GB", "gpus": "256", "tp": "8", "pp": "1", "cp": "1", "dp": "32", "mbs": "4",
    "gbs": "1024", "precision": "fp16", "act_ckpt": "full", "iter_s": "9.93", "note": "800 Gb/s per node",
}  # fmt: skip


def test_a_complete_row_is_parsed() -> None:
    row = read_row({**ROW, "unheard_of": "x"})
    assert row.full
    assert row.step_s == 9.93
    assert row.plan.layout.world_size == 256
    assert row.cluster.network_bytes_s * 8 == 100e9
    assert row.work.model.parameters / 1e9 == pytest.approx(18.4, rel=0.02)
    assert not row.out_of_memory


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"gpu": "Abacus"}, "'Abacus' is not in the hardware table"),
        ({"gbs": ""}, "gbs is missing"),
        ({"hidden": ""}, "hidden is missing"),
        ({"layers": "", "params_b": ""}, "layers and params_b"),
        ({"tp": "four"}, "tp must be a number, got 'four'"),
        ({"pp": "-1"}, "must be positive"),
        ({"mbs": "1.5"}, "whole number"),
        ({"dp": "64"}, "8·1·1·64 = 512, gpus = 256"),
        ({"precision": "fp8"}, "A100 does not support fp8"),
        ({"ep": "8"}, "ep is 8"),
        ({"iter_s": "1.0"}, "above the 312 TFLOP/s of A100"),
    ],
)
def test_an_invalid_row_is_refused_with_the_reason(change: dict[str, str], reason: str) -> None:
    with pytest.raises(RowError, match=reason):
        read_row({**ROW, **change})


@pytest.mark.parametrize("text", ["x", "", "nan", "OOM"])
def test_text_instead_of_a_time_means_no_measurement(text: str) -> None:
    row = read_row({**ROW, "iter_s": text, "mem_gb": "OOM"})
    assert row.step_s is None
    assert row.out_of_memory
    assert row.memory_gb is None


def test_missing_values_are_inferred_and_listed() -> None:
    row = read_row({**ROW, "layers": "", "heads": "", "dp": "", "mbs": ""})
    assert not row.full
    assert {"layers", "heads", "dp", "mbs", "vocab"} <= row.inferred.keys()
    assert row.work.model.layers == 40


def test_a_batch_in_tokens_becomes_samples() -> None:
    row = read_row({**ROW, "gbs": "", "note": "2M tokens per batch; something else"})
    assert row.work.global_batch == 1024
    assert row.inferred["gbs"] == 1024
    assert not row.full


def test_a_published_model_supplies_missing_sizes() -> None:
    sizes = {"model": "LLAMA3_70B", "layers": "80", "hidden": "8192", "heads": ""}
    row = read_row({**ROW, **sizes, "iter_s": "90", "precision": "bf16"})
    assert row.work.model.groups == 8
    assert row.work.model.vocabulary == 128256


def test_optional_columns_are_used() -> None:
    row = read_row(
        {**ROW, "gpus_per_node": "4", "vocab": "32000", "ffn": "16384", "kv_heads": "8", "flash": "yes", "pp": "2",
         "zero": "zero-3", "dp": "16", "schedule": "gpipe", "sp": "yes"}
    )  # fmt: skip
    assert (row.cluster.domain, row.work.model.inner, row.work.model.groups) == (4, 16384, 8)
    assert row.work.flash
    assert row.states.optimizer == 12
    assert read_row({**ROW, "optimizer_dtype": "bf16"}).states.optimizer == 8
    assert (row.plan.sharding, row.plan.schedule, row.plan.sequence_parallel) == ("fsdp", "gpipe", True)


def test_time_follows_from_tokens_and_from_operations() -> None:
    tokens = read_row({**ROW, "iter_s": "", "tok_s_gpu": "820"})
    assert tokens.step_s == pytest.approx(1024 * 2048 / (820 * 256))
    bare = {**ROW, "iter_s": "", "tflops_gpu": "135"}
    counted = read_row({**bare, "mfu_pct": "43"})
    redone = read_row(bare)
    assert counted.step_s is not None
    assert redone.step_s == pytest.approx(counted.step_s * 4 / 3), (
        "operations include recomputation if they are the only measurement"
    )


def test_versions_of_one_software_are_one_stack() -> None:
    assert stack_of("NVIDIA Megatron-Bridge performance 26.02 NeMo Container") == "NVIDIA Megatron Bridge"
    assert stack_of("torchtitan Aug 2024") == stack_of("torchtitan H200 (Trainy/WhiteFiber) Jun 2025") == "torchtitan"
