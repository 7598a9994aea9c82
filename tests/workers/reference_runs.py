"""Ranks compared with the dense reference: the engine on any layout, and the built-in trainer on one rank."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regroup.workers.contract.rank_config import ParallelConfig, RankConfig
from tests.support.inputs.dense_training import dense_training, initial_values, one_thread
from tests.support.inputs.rank_configs import changed
from tests.support.reference.storage import stored_in_float16
from tests.support.reference.training import IGNORED, LossScale, Step, cosine_rate
from tests.workers.parity_loop import COMPARED, SEED, STEPS, VOCABULARY, batches

Split = tuple[str, dict[str, int], dict[str, Any]]
"""`data_parallel`, degrees by axis, and the rest of a strategy."""
Mutation = Sequence[tuple[str, str, str]]
"""(module, part of its source, what replaces it)."""

LIMIT, SCALAR_LIMIT = 1e-11, 1e-12
"""In float64: of a tensor's norm, and of the loss and the gradient's norm."""
HALF_LIMIT = 5e-3
"""In float16, relative, of anything but weights of norms: the errors are near 3e-4."""
HALF_NORM_LIMIT = 2e-2
"""In float16, of the weights of norms: their gradients are sums over all tokens in which most of the terms cancel. The
errors are near 8e-3."""
SCALE = 2.0**16
RECORDS, SEQUENCE, SYMBOLS, MICRO_BATCH = 12, 16, 24, 4
INITIAL_SCALE, GROWTH_INTERVAL = 2.0**22, 3
"""In float16: the first steps overflow, and the scale grows again before the last."""


def engine_config(config: RankConfig, *, tied: bool) -> RankConfig:
    """Return four blocks of a model that divides by two, in float64; its gradients are clipped."""
    return changed(
        config,
        training={"precision": "fp64", "optimizer": {"momentum": 0.9, "clip_norm": 0.5}},
        model={"dim": 16, "layers": 4, "heads": 4, "kv_heads": 2, "ffn_dim": 24, "tie_embeddings": tied},
    )


@one_thread()
def engine_reference(config: RankConfig, optimizers: Sequence[str], count: int) -> dict[tuple[str, int], Any]:
    """Return what `parity_loop.dense` returns, by the dense reference, for `count` micro-batches a step."""
    found: dict[tuple[str, int], Any] = {}
    for name in optimizers:
        training = dense_training(changed(config, training={"optimizer": {"name": name}}), VOCABULARY, SEED)
        for step in range(1, STEPS + 1):
            made = [(batch.inputs, batch.labels) for batch in batches(step, count=count)]
            done = training.step(made, config.training.optimizer.lr)
            if step in COMPARED:
                found[name, step] = (done.loss, done.norm, done.gradients, done.parameters)
    return found


def engine_errors(
    agent: Any,
    config: RankConfig,
    split: Split,
    folder: Path,
    *,
    count: int,
    optimizers: Sequence[str],
    mutation: Mutation = (),
) -> list[str]:
    """Return by how much the engine on a layout differs from the reference, if by more than float64's rounding.

    The loss is scaled as in float16, by a power of two, which rounds nothing.
    """
    file = folder / "reference"
    torch.save(engine_reference(config, optimizers, count), file)
    args = {"reference": str(file), "count": count, "scale": SCALE, "optimizers": list(optimizers)}
    run = agent.spread(
        replace(config, args={**args, "mutation": mutation, "entry": "parity_loop:spread"}),
        split,
        "engine",
        entry="reference_loop:mutated",
    )
    assert set(run.codes) == {0}, run.errors
    assert list(run.result) == [f"{name} after {step}" for name in optimizers for step in COMPARED]
    limits = {"loss": SCALAR_LIMIT, "norm": SCALAR_LIMIT, "gradients": LIMIT, "parameters": LIMIT}
    return [
        f"{kind} of {when}: {found[kind]:.1e}"
        for when, found in run.result.items()
        for kind, most in limits.items()
        if not found[kind] <= most
    ]


@dataclass(frozen=True)
class Records:
    """Prepared records with labels of their own, of which about a third is ignored."""

    dataset: dict[str, Any]
    tokens: torch.Tensor
    labels: torch.Tensor


def write_records(folder: Path) -> Records:
    """Write as many records as a step has samples: each step sees all of them, in whatever order."""
    generator = torch.Generator().manual_seed(3)
    tokens, labels = torch.randint(SYMBOLS, (2, RECORDS, SEQUENCE), generator=generator)
    labels[torch.rand(labels.shape, generator=generator) < 0.3] = IGNORED
    fields = [("tokens", "<i4", (SEQUENCE,)), ("labels", "<i4", (SEQUENCE,))]
    rows = np.zeros(RECORDS, np.dtype(fields))
    rows["tokens"], rows["labels"] = tokens.numpy(), labels.numpy()
    rows.tofile(folder / "train.bin")
    files = [{"name": "train.bin", "records": RECORDS}]
    meta = {"fingerprint": "labels", "vocab_size": SYMBOLS, "fields": fields, "splits": {"train": {"files": files}}}
    (folder / "meta.json").write_text(json.dumps(meta))
    return Records({"kind": "records", "records": {"train": RECORDS}, "directory": str(folder)}, tokens, labels)


def trainer_config(config: RankConfig, *, precision: str, steps: int, **optimizer: Any) -> RankConfig:
    """Return a training on the records: three micro-batches a step, with warm-up and decay of the learning rate."""
    training = {"precision": precision, "steps": steps, "global_batch": RECORDS, "micro_batch": MICRO_BATCH}
    config = changed(config, training={**training, "optimizer": optimizer, "validate_every": None})
    return replace(config, parallel=ParallelConfig("fsdp"))


@one_thread()
def trainer_reference(config: RankConfig, records: Records) -> list[Step]:
    """Return the steps of the trainer, by the dense reference."""
    training, is_half = config.training, config.training.precision == "fp16"
    dense = dense_training(
        config,
        SYMBOLS,
        config.seed,
        **({"stored": stored_in_float16, "scale": LossScale(INITIAL_SCALE, GROWTH_INTERVAL)} if is_half else {}),
    )
    made = list(zip(records.tokens.split(MICRO_BATCH), records.labels.split(MICRO_BATCH), strict=True))
    schedule = training.schedule
    return [
        dense.step(
            made,
            cosine_rate(
                step,
                peak=training.optimizer.lr,
                warmup=schedule.warmup_steps,
                steps=training.steps or 0,
                floor=schedule.min_lr_ratio,
            ),
        )
        for step in range(1, (training.steps or 0) + 1)
    ]


def trainer_errors(agent: Any, config: RankConfig, folder: Path, *, mutation: Mutation = ()) -> list[str]:
    """Return by how much the built-in trainer differs from the reference, if by more than its precision explains."""
    records = write_records(folder)
    expected = trainer_reference(config, records)
    is_half = config.training.precision == "fp16"
    scale = {"initial_scale": INITIAL_SCALE, "growth_interval": GROWTH_INTERVAL} if is_half else {}
    args = {"values": str(folder / "values"), **scale, "mutation": mutation, "entry": "reference_loop:trained"}
    run = agent.run(replace(config, args=args), 1, "trainer", entry="reference_loop:mutated", dataset=records.dataset)
    assert run.codes == [0], run.errors
    limit = HALF_LIMIT if is_half else LIMIT
    wrong: list[str] = []
    for row, step in zip(run.rows, expected, strict=True):
        assert row["tokens"] == step.labels
        if (row["grad_norm"] is None) != step.is_skipped:
            wrong.append(f"step {row['step']}: skipped is {row['grad_norm'] is None}")
        pairs = {"loss": (row["loss"], step.loss)}
        if not step.is_skipped and row["grad_norm"] is not None:
            pairs["norm"] = (row["grad_norm"], step.norm)
        wrong += [
            f"{kind} of step {row['step']}: {found} instead of {right}"
            for kind, (found, right) in pairs.items()
            if found is None or not math.isclose(found, right, rel_tol=limit)
        ]
    values = torch.load(folder / "values", weights_only=True)
    start = initial_values(config, SYMBOLS, config.seed)
    assert values.keys() == start.keys()
    for name, right in expected[-1].parameters.items():
        change, expected_change = values[name].double() - start[name], right - start[name]
        error = float((change - expected_change).norm() / expected_change.norm())
        if not error <= (HALF_NORM_LIMIT if is_half and "norm" in name else limit):
            wrong.append(f"{name}: {error:.1e}")
    return wrong
