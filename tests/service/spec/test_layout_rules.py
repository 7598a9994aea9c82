"""The layout rules: a submission that violates a rule is refused with the reason of this rule alone."""

from typing import Any

import pytest

from regroup.service.domain.errors import SpecError
from regroup.service.domain.layout import Layout
from regroup.service.spec.job import JobSpec, parse_spec
from regroup.service.spec.layout_rules import RULES, render_rules
from regroup.workers.data.tokenizers import ByteTokenizer

MODEL = {"dim": 48, "layers": 4, "heads": 6, "kv_heads": 6, "ffn_dim": 96, "vocab_size": 258}
TRAINING = {"global_batch": 24, "micro_batch": 2, "sequence": 12, "steps": 3}


CONVNET = {"family": "convnet", "classes": 10, "dim": 6, "layers": 4}
IMAGES = {"prepare": {"format": "jsonl", "train": ["/data"], "function": "mine:images"}}


def parsed(layout: dict[str, Any], model: dict[str, Any] | None = None, **training: Any) -> JobSpec:
    workload: dict[str, Any] = {"kind": "builtin"}
    if model and model.get("family") == "convnet":
        workload |= {"model": model, "data": IMAGES}
        training = {"sequence": None, **training}
    else:
        workload |= {"model": {**MODEL, **(model or {})}, "data": {"train": ["/data"]}}
    return parse_spec({"name": "a", "workload": workload, "layout": layout, "training": {**TRAINING, **training}})


BROKEN: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "must not exceed the number of micro-batches per step": ({"dp": 13}, {}, {}),
    "must divide layout.dp": ({"dp": 4, "dp_shard": 3}, {}, {}),
    "needs data_parallel fsdp or zero2": ({"dp": 4, "dp_shard": 2, "data_parallel": "ddp"}, {}, {}),
    "zero1 needs tp 1 and pp 1": ({"dp": 2, "tp": 2, "data_parallel": "zero1"}, {}, {}),
    "must be true, except with data_parallel fsdp": ({"pp": 2, "reshard_after_forward": False}, {}, {}),
    "an integer must divide the number of ranks": ({"dp": 6, "reshard_after_forward": 4}, {}, {}),
    "a value other than 1, and offload, need": ({"dp": 2, "data_parallel": "ddp", "offload": True}, {}, {}),
    "a value other than 25 needs": ({"dp": 2, "bucket_mib": 1}, {}, {}),
    "true needs data_parallel ddp": ({"dp": 2, "find_unused_parameters": True}, {}, {}),
    "must divide the model's heads": ({"tp": 4}, {"heads": 6, "kv_heads": 1}, {"sequence": 16}),
    "must divide the model's kv_heads": ({"tp": 2}, {"kv_heads": 3}, {}),
    "must divide the model's ffn_dim": ({"tp": 2}, {"ffn_dim": 97}, {}),
    "must divide the model's vocab_size": ({"tp": 2}, {"vocab_size": 259}, {}),
    "must divide training.sequence": ({"tp": 2}, {}, {"sequence": 13}),
    "must be 1; context": ({"cp": 2}, {}, {}),
    "must be false; async_tp needs symmetric memory": ({"tp": 2, "async_tp": True}, {}, {}),
    "must not be float8": ({}, {}, {"precision": "float8"}),
    "needs at least one block per stage": ({"pp": 6}, {}, {}),
    "must be 1 with tie_embeddings": ({"pp": 2}, {"tie_embeddings": True}, {}),
    "needs at least pp micro-batches per rank": ({"dp": 12, "pp": 2}, {}, {}),
    "must not be selective with zero-bubble": (
        {"pp": 2, "schedule": "zbv"}, {}, {"activation_checkpointing": "selective"},
    ),
    "must divide the model's classes": ({"tp": 3, "sequence_parallel": False}, CONVNET, {}),
    "must be false with tp above 1 if samples": ({"tp": 2}, CONVNET, {}),
    "if the model has batch normalization": ({"dp": 5}, CONVNET, {}),
    "if model.norm_over is global_batch": ({"dp": 6}, CONVNET | {"norm_over": "global_batch"}, {}),
    "must not be bf16 with precision fp64": ({}, {}, {"reduce": "bf16", "precision": "fp64"}),
    "must be off with tp above 1": ({"tp": 2}, {}, {"compile": "default"}),
    "must be off with zero-bubble": ({"pp": 2, "schedule": "zbv"}, {}, {"compile": "default"}),
    "a fraction needs training.compile": ({}, {}, {"activation_checkpointing": 0.5}),
    "a whole number of rounds": ({"dp": 4, "pp": 2, "schedule": "interleaved_1f1b"}, {}, {"global_batch": 40}),
}  # fmt: skip
"""Part of a requirement → layout, model and training that violate it."""


@pytest.mark.parametrize("requirement", BROKEN)
def test_a_violation_is_rejected_with_requirement_values_and_reason(requirement: str) -> None:
    layout, model, training = BROKEN[requirement]
    text, _, reason = requirement.partition("; ")
    with pytest.raises(SpecError) as refused:
        parsed(layout, model, **training)
    (issue,) = refused.value.issues
    broken = [
        rule
        for rule in RULES
        if rule.requirement in issue.message and text in rule.requirement and reason in rule.reason
    ]
    assert broken and broken[0].reason in issue.message, issue.message
    assert "=" in issue.message and issue.message.startswith(("layout.", "training."))


def test_every_rule_has_a_violation_case() -> None:
    for rule in RULES:
        assert any(
            key.partition("; ")[0] in rule.requirement and key.partition("; ")[2] in rule.reason for key in BROKEN
        ), rule.requirement


@pytest.mark.parametrize(
    "layout",
    [
        {"dp": 4, "data_parallel": "ddp"},
        {"dp": 3, "data_parallel": "zero1"},
        {"dp": 6, "dp_shard": 3, "data_parallel": "zero2"},
        {"dp": 6, "reshard_after_forward": 3, "prefetch": 2, "offload": True},
        {"dp": 4, "data_parallel": "zero1", "bucket_mib": 1},
        {"dp": 4, "data_parallel": "ddp", "find_unused_parameters": True},
        {"dp": 2, "tp": 3, "pp": 2, "sequence_parallel": False},
        {"dp": 2, "tp": 2, "pp": 2, "schedule": "zbv"},
        {"pp": 4, "schedule": "gpipe"},
    ],
)
def test_a_layout_that_follows_all_rules_is_accepted(layout: dict[str, Any]) -> None:
    assert parsed(layout).layout.layout_at(layout.get("dp", 1)).world_size >= 3


def test_the_ladder_has_no_sizes_that_violate_a_rule() -> None:
    spec = parsed({"dp": {"min": 2, "target": 4, "max": 8}, "dp_shard": 2})
    assert [str(layout) for layout in spec.ladder] == [
        "dp_shard=2", "dp_replicate=2×dp_shard=2", "dp_replicate=3×dp_shard=2", "dp_replicate=4×dp_shard=2",
    ]  # fmt: skip
    looped = parsed({"dp": {"min": 1, "target": 1, "max": 6}, "pp": 2, "schedule": "interleaved_1f1b"})
    assert [layout.data_degree for layout in looped.ladder] == [1, 2, 3, 4, 5, 6]


def test_a_size_uses_a_smaller_micro_batch_if_necessary() -> None:
    """Divide 24 samples into micro-batches of 6: four data ranks, or two pipelines of two, have one each."""
    spec = parsed({"dp": {"min": 1, "target": 4, "max": 24}}, micro_batch=6)
    found = {layout.data_degree: layout.micro_batch for layout in spec.ladder}
    assert found == {**dict.fromkeys(range(1, 5), None), **dict.fromkeys(range(5, 9), 3),
                     **dict.fromkeys(range(9, 13), 2), **dict.fromkeys(range(13, 25), 1)}  # fmt: skip
    piped = {layout.data_degree: layout.micro_batch for layout in spec.with_model_parallel(1, 2).ladder}
    assert (piped[3], piped[4], piped[7], piped[8], piped[12]) == (None, 3, 3, 2, 1) and 24 not in piped
    assert str(spec.ladder[4]) == "dp_shard=5, micro_batch=3"
    assert Layout(**spec.ladder[4].to_json()) == spec.ladder[4]
    assert "micro_batch" not in spec.ladder[4].degrees | spec.ladder[0].to_json()


@pytest.mark.parametrize(
    ("model", "training"), [(CONVNET, {}), ({}, {"batch": "follows_world"})], ids=["batch norm", "follows"]
)
def test_a_job_that_depends_on_the_micro_batch_keeps_its_size(model: dict[str, Any], training: dict[str, Any]) -> None:
    spec = parsed({"dp": {"min": 1, "target": 4, "max": 4}}, model, micro_batch=6, **training)
    assert {layout.micro_batch for layout in spec.ladder} == {None}
    if not training:
        with pytest.raises(SpecError, match="must not exceed the number of micro-batches per step"):
            parsed({"dp": {"min": 1, "target": 4, "max": 8}}, model, micro_batch=6)


def test_the_vocabulary_of_the_byte_tokenizer_needs_no_node() -> None:
    with pytest.raises(SpecError, match=f"vocab_size={ByteTokenizer.vocab_size}.* set model.vocab_size to a multiple"):
        parsed({"tp": 2}, {"vocab_size": None})


@pytest.mark.parametrize("field", ["tp", "pp", "cp"])
def test_functions_and_scripts_are_data_parallel(field: str) -> None:
    function = {"kind": "function", "function": "m:f"}
    training = {key: TRAINING[key] for key in ("global_batch", "micro_batch", "steps")}
    with pytest.raises(SpecError, match=rf"layout\.{field} must be 1 for a function workload"):
        parse_spec({"name": "a", "workload": function, "layout": {field: 2}, "training": training})
    script = {"kind": "script", "entrypoint": "/train.py"}
    with pytest.raises(SpecError, match=r"set only layout\.dp"):
        parse_spec({"name": "a", "workload": script, "layout": {field: 2}})


def test_the_rendered_table_has_all_rules() -> None:
    table = render_rules()
    assert all(rule.requirement in table and rule.reason in table for rule in RULES)


@pytest.mark.parametrize(
    ("layout", "model"),
    [
        ({"dp": 4, "tp": 2, "sequence_parallel": False}, {}),
        ({"dp": 3, "pp": 4}, {}),
        ({"dp": 12}, {"norm_over": "global_batch"}),
    ],
)
def test_an_image_model_has_its_own_rules(layout: dict[str, Any], model: dict[str, Any]) -> None:
    assert parsed(layout, CONVNET | model).training is not None


def test_a_batch_that_follows_the_world_has_constant_micro_batches_per_rank() -> None:
    layout = {"dp": {"min": 1, "target": 4, "max": 16}}
    spec = parsed(layout, batch="follows_world", lr_rule="sqrt")
    assert [size.world_size for size in spec.ladder] == list(range(1, 17)), (
        "more ranks than micro-batches of the target size"
    )
    assert [spec.samples_per_step(size) for size in spec.ladder[:4]] == [6, 12, 18, 24]
    assert parsed(layout | {"dp": 4}).samples_per_step(spec.ladder[0]) == 24
    with pytest.raises(SpecError, match="12 micro-batches, target 5"):
        parsed({"dp": 5}, batch="follows_world")
    with pytest.raises(SpecError, match="need batch: follows_world"):
        parsed({"dp": 4}, lr_rule="linear")


def test_a_range_has_no_size_that_needs_padded_ranks() -> None:
    sizes = [layout.world_size for layout in parsed({"dp": {"min": 1, "target": 4, "max": 12}}, CONVNET).ladder]
    assert sizes == [1, 2, 3, 4, 6, 12]
