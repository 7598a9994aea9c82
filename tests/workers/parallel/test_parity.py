"""Every strategy, alone and combined, computes what one process of plain torch does."""

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.contract.rank_config import ParallelConfig, RankConfig
from tests.support.inputs.rank_configs import changed
from tests.workers.parity_loop import COUNT

LIMIT, SCALAR_LIMIT = 1e-11, 1e-12
"""In float64: of a tensor's norm, and of the loss and the gradient's norm."""
TENSORS = {"transformer": 3 + 9 * 4, "convnet": 4 + 7 * 4}
BUFFERS = {"transformer": 0, "convnet": 4 * 4}
CONVNET = {
    "family": "convnet", "channels": 2, "classes": 24, "dim": 8, "layers": 4, "ffn_dim": 16,
    "norm_over": "micro_batch", "norm_eps": 1e-5, "norm_momentum": 0.1,
}  # fmt: skip

LAYOUTS: dict[str, tuple[str, dict[str, int], dict[str, Any]]] = {
    # `count`: micro-batches of a step. Each pipeline needs as many as it has stages.
    "ddp2": ("ddp", {"dp_replicate": 2}, {}),
    "ddp3, with unused parameters": ("ddp", {"dp_replicate": 3}, {"find_unused_parameters": True}),
    "zero1-2": ("zero1", {"dp_replicate": 2}, {}),
    "zero1-3, uneven": ("zero1", {"dp_replicate": 3}, {}),
    "zero2-2": ("zero2", {"dp_shard": 2}, {}),
    "fsdp2": ("fsdp", {"dp_shard": 2}, {}),
    "fsdp3, uneven": ("fsdp", {"dp_shard": 3}, {}),
    "fsdp4, kept by two": ("fsdp", {"dp_shard": 4}, {"reshard_after_forward": 2}),
    "fsdp2, two ahead, offloaded": ("fsdp", {"dp_shard": 2}, {"prefetch": 2, "offload": True}),
    "fsdp2, recomputed": ("fsdp", {"dp_shard": 2}, {"activation_checkpointing": "full"}),
    "fsdp2, recomputed but for cheap parts": ("fsdp", {"dp_shard": 2}, {"activation_checkpointing": "selective"}),
    "hsdp2x2": ("fsdp", {"dp_replicate": 2, "dp_shard": 2}, {}),
    "tp2": ("fsdp", {"tp": 2}, {}),
    "tp2, whole sequences": ("fsdp", {"tp": 2}, {"sequence_parallel": False}),
    "tp2, recomputed but for cheap parts": ("fsdp", {"tp": 2}, {"activation_checkpointing": "selective"}),
    "tp2, tied": ("fsdp", {"tp": 2}, {"tie_embeddings": True}),
    "tp2 x ddp2": ("ddp", {"dp_replicate": 2, "tp": 2}, {}),
    "tp2 x fsdp3, uneven": ("fsdp", {"dp_shard": 3, "tp": 2}, {}),
    "pp2": ("fsdp", {"pp": 2}, {}),
    "pp2, gpipe": ("fsdp", {"pp": 2}, {"schedule": "gpipe"}),
    "pp2, every second block recomputed": ("fsdp", {"pp": 2}, {"activation_checkpointing": 2}),
    "pp2, zbv, recomputed": ("fsdp", {"pp": 2}, {"schedule": "zbv", "activation_checkpointing": "full"}),
    "pp2, interleaved": ("fsdp", {"pp": 2}, {"schedule": "interleaved_1f1b"}),
    "pp2, interleaved zero bubble": ("fsdp", {"pp": 2}, {"schedule": "interleaved_zero_bubble"}),
    "pp2, zbv": ("fsdp", {"pp": 2}, {"schedule": "zbv"}),
    "pp4": ("fsdp", {"pp": 4}, {}),
    "pp2 x ddp2": ("ddp", {"dp_replicate": 2, "pp": 2}, {}),
    "pp2 x fsdp3, uneven": ("fsdp", {"dp_shard": 3, "pp": 2}, {}),
    "hsdp2x2 x tp2": ("fsdp", {"dp_replicate": 2, "dp_shard": 2, "tp": 2}, {}),
    "pp2 x hsdp2x2": ("fsdp", {"dp_replicate": 2, "dp_shard": 2, "pp": 2}, {"count": 12}),
    "pp2 x tp2, zbv": ("fsdp", {"pp": 2, "tp": 2}, {"schedule": "zbv"}),
    "pp2 x tp2 x fsdp2": ("fsdp", {"dp_shard": 2, "tp": 2, "pp": 2}, {}),
    "convnet, ddp2": ("ddp", {"dp_replicate": 2}, {"model": CONVNET}),
    "convnet, ddp4, one batch": ("ddp", {"dp_replicate": 4}, {"model": CONVNET | {"norm_over": "global_batch"}}),
    "convnet, zero1-2": ("zero1", {"dp_replicate": 2}, {"model": CONVNET}),
    "convnet, hsdp2x2, recomputed": (
        "fsdp", {"dp_replicate": 2, "dp_shard": 2}, {"model": CONVNET, "activation_checkpointing": "full"},
    ),
    "convnet, tp2 x fsdp2": ("fsdp", {"dp_shard": 2, "tp": 2}, {"model": CONVNET, "sequence_parallel": False}),
    "convnet, pp2, zbv": ("fsdp", {"pp": 2}, {"model": CONVNET, "schedule": "zbv"}),
    "convnet, pp2 x ddp2": ("ddp", {"dp_replicate": 2, "pp": 2}, {"model": CONVNET}),
    "convnet, pp2 x tp2": ("fsdp", {"pp": 2, "tp": 2}, {"model": CONVNET, "sequence_parallel": False}),
}  # fmt: skip

VARIANTS = frozenset({
    "zero1-2", "fsdp3, uneven", "fsdp2, recomputed", "tp2, whole sequences", "tp2, recomputed but for cheap parts",
    "tp2 x ddp2", "tp2 x fsdp3, uneven", "pp2", "pp2, every second block recomputed", "pp2, interleaved zero bubble",
    "pp2, zbv", "pp2 x tp2, zbv", "pp2 x fsdp3, uneven", "hsdp2x2 x tp2", "pp2 x hsdp2x2",
    "convnet, ddp2", "convnet, zero1-2", "convnet, tp2 x fsdp2", "convnet, pp2 x ddp2",
})  # fmt: skip
"""Combinations of what the others show: only in `make test-all`."""


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return defaultdict(lambda: tmp_path_factory.mktemp("reference") / "values")


@pytest.fixture
def exact(config: RankConfig) -> RankConfig:
    """Four blocks of a model that divides by two, in float64; its gradients are clipped."""
    return changed(
        config,
        training={"precision": "fp64", "optimizer": {"momentum": 0.9, "clip_norm": 0.5}},
        model={"dim": 16, "layers": 4, "heads": 4, "kv_heads": 2, "ffn_dim": 24},
    )


def config_of(config: RankConfig, name: str) -> RankConfig:
    """Return the configuration of a layout: its strategy, and the model that the layout is tried with."""
    data_parallel, _, options = LAYOUTS[name]
    options = {key: value for key, value in options.items() if key != "count"}
    config = changed(config, training={"activation_checkpointing": options.pop("activation_checkpointing", "none")})
    model = options.pop("model", {**config.model, "tie_embeddings": options.pop("tie_embeddings", False)})
    return replace(config, model=model, parallel=ParallelConfig(data_parallel, **options))


def spread(agent: Any, config: RankConfig, references: dict[str, Path], name: str, **args: Any) -> dict[str, Any]:
    """Return the errors of a layout against the reference, which is made when it is first needed."""
    _, layout, options = LAYOUTS[name]
    config, count = config_of(config, name), options.get("count", COUNT)
    reference = references[f"{config.training.precision} {count} {json.dumps(config.model)}"]
    config = replace(config, args={"reference": str(reference), "count": count, **args})
    if not reference.exists():
        assert agent.run(config, 1, "dense", entry="parity_loop:dense").codes == [0]
    ranks = 1
    for degree in layout.values():
        ranks *= degree
    run = agent.run(config, ranks, f"parity-{ranks}", entry="parity_loop:spread", layout=layout)
    assert run.codes == [0] * ranks, run.errors
    return run.result


def beyond(errors: dict[str, Any], limit: float, scalar_limit: float) -> list[str]:
    """Return the errors that exceed the limits."""
    limits = {"loss": scalar_limit, "norm": scalar_limit, "gradients": limit, "parameters": limit}
    return [
        f"{kind} of {when}: {found[kind]:.1e}"
        for when, found in errors.items()
        for kind, most in limits.items()
        if not found[kind] <= most
    ]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in VARIANTS else []) for name in LAYOUTS]
)
def test_gradients_and_parameters_are_those_of_one_process(
    agent: Any, exact: RankConfig, references: dict[str, Path], name: str
) -> None:
    errors = spread(agent, exact, references, name)
    assert beyond(errors, LIMIT, SCALAR_LIMIT) == []
    assert list(errors) == ["adamw after 1", "adamw after 5", "sgd after 1", "sgd after 5"]
    model = config_of(exact, name).model
    family = model["family"]
    tensors = TENSORS[family] - model.get("tie_embeddings", False)
    assert {found["compared gradients"] for found in errors.values()} == {tensors}
    assert {found["compared parameters"] for found in errors.values()} == {tensors + BUFFERS[family]}


@pytest.mark.parametrize(
    ("mutant", "name"),
    [("wrong shard axis", "tp2"), ("missing reduce", "ddp2"), ("dropped token", "fsdp2"), ("norm gradient", "pp2")],
)
def test_the_comparison_finds_what_is_wrong(
    agent: Any, exact: RankConfig, references: dict[str, Path], mutant: str, name: str
) -> None:
    errors = spread(agent, exact, references, name, mutant=mutant, optimizers=["sgd"])
    assert any(found.startswith("gradients of sgd after 1") for found in beyond(errors, LIMIT, SCALAR_LIMIT))


@pytest.mark.parametrize("name", ["ddp2", "fsdp2", "tp2", "pp2", "pp2 x tp2 x fsdp2"])
def test_in_float32_the_first_step_is_within_reordering(
    agent: Any, exact: RankConfig, references: dict[str, Path], name: str
) -> None:
    exact = changed(exact, training={"precision": "fp32"})
    found = spread(agent, exact, references, name, optimizers=["sgd"])["sgd after 1"]
    assert found["loss"] <= 1e-6
    assert max(found["all gradients"], found["all parameters"]) <= 2e-6


def test_what_a_stage_raises_is_not_wrapped(agent: Any, exact: RankConfig) -> None:
    exact = replace(exact, parallel=ParallelConfig("fsdp", schedule="1f1b"), args={})
    run = agent.run(exact, 2, "breaks", entry="parity_loop:breaks", layout={"pp": 2}, show_errors=False)
    assert run.errors[0] == "ConnectionError: the network is gone", "a RuntimeError would be the model's own fault"
