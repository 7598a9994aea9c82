"""Mutants of the product that tests once passed: the dense reference finds each of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.contract.rank_config import RankConfig
from tests.workers.reference_runs import Mutation, Split, engine_config, engine_errors, trainer_config, trainer_errors

MODELS, PARALLEL = "regroup.workers.models", "regroup.workers.parallel"

DETACHED_HEAD = (
    f"{MODELS}.transformer",
    "return self.head(x, self.embed.weight)",
    "return self.head(x, self.embed.weight.detach())",
)
DOUBLE_EXPONENT = (f"{MODELS}.transformer", "theta ** (-torch.arange(", "theta ** (-2 * torch.arange(")
SCALED_UPDATE = (
    f"{PARALLEL}.engine",
    "clip_factor(norm, self._clip_norm) / self.scale.value)",
    "clip_factor(norm, self._clip_norm))",
)
SCALED_NORM = (f"{PARALLEL}.engine", ") / self.scale.value**2", ")")
NO_CORRECTION = (
    "regroup.workers.train.trainer",
    "correction = self._nominal_labels / max(tokens, 1)",
    "correction = 1.0",
)
HALF_OF_THE_LAST = (
    f"{PARALLEL}.pipeline_parallel",
    "return loss * self._scale()",
    "count = self._schedule._n_microbatches\n"
    "        return loss * self._scale() * (0.5 if count % 2 and len(self._losses) == count else 1)",
)
HALF_OF_THE_LAST_WITHOUT_PIPELINE = (
    f"{PARALLEL}.non_pipelined",
    "(loss * self._scale()).backward()",
    "(loss * self._scale() * (0.5 if len(batches) % 2 and number == len(batches) - 1 else 1)).backward()",
)


@dataclass(frozen=True)
class EngineMutant:
    """A mutant, and the smallest layout that shows it, with three micro-batches a step."""

    mutation: Mutation
    layout: Split
    found: str
    """Start of what the comparison reports first."""
    tied: bool = False


ONE: Split = ("fsdp", {"dp_shard": 1}, {})
ENGINE_MUTANTS = {
    "tied head detached": EngineMutant([DETACHED_HEAD], ONE, "norm of sgd after 1", tied=True),
    "exponent of the rotation doubled": EngineMutant([DOUBLE_EXPONENT], ONE, "loss of sgd after 1"),
    "both": EngineMutant([DETACHED_HEAD, DOUBLE_EXPONENT], ONE, "loss of sgd after 1", tied=True),
    "update not unscaled": EngineMutant([SCALED_UPDATE], ONE, "parameters of sgd after 1"),
    "norm not unscaled": EngineMutant([SCALED_NORM], ONE, "norm of sgd after 1"),
    "last micro-batch halved": EngineMutant([HALF_OF_THE_LAST_WITHOUT_PIPELINE], ONE, "norm of sgd after 1"),
    "last micro-batch halved, pp2": EngineMutant(
        [HALF_OF_THE_LAST], ("fsdp", {"pp": 2}, {"schedule": "1f1b"}), "norm of sgd after 1"
    ),
    "last micro-batch halved, zbv": EngineMutant(
        [HALF_OF_THE_LAST], ("fsdp", {"pp": 2}, {"schedule": "zbv"}), "norm of sgd after 1"
    ),
}


def test_code_that_is_replaced_by_itself_passes(agent: Any, config: RankConfig, tmp_path: Path) -> None:
    mutants = (DETACHED_HEAD, DOUBLE_EXPONENT, SCALED_UPDATE, SCALED_NORM, HALF_OF_THE_LAST_WITHOUT_PIPELINE)
    same = [(module, old, old) for module, old, _ in mutants]
    exact = engine_config(config, tied=True)
    assert engine_errors(agent, exact, ONE, tmp_path, count=3, optimizers=["sgd"], mutation=same) == []


@pytest.mark.parametrize("mutant", ENGINE_MUTANTS.values(), ids=ENGINE_MUTANTS)
def test_the_reference_finds_a_mutant_of_the_engine(
    agent: Any, config: RankConfig, tmp_path: Path, mutant: EngineMutant
) -> None:
    # tests/workers/parallel/test_dense_reference.py shows that the same comparisons pass without a mutant.
    exact = engine_config(config, tied=mutant.tied)
    wrong = engine_errors(agent, exact, mutant.layout, tmp_path, count=3, optimizers=["sgd"], mutation=mutant.mutation)
    assert wrong and wrong[0].startswith(mutant.found), wrong


def test_the_reference_finds_an_update_in_float16_that_is_not_unscaled(
    agent: Any, config: RankConfig, tmp_path: Path
) -> None:
    half = trainer_config(config, precision="fp16", steps=9, name="sgd", lr=0.05, momentum=0.9, clip_norm=None)
    assert trainer_errors(agent, half, tmp_path, mutation=[SCALED_UPDATE])


def test_the_reference_finds_that_ignored_labels_are_not_corrected(
    agent: Any, config: RankConfig, tmp_path: Path
) -> None:
    exact = trainer_config(config, precision="fp64", steps=4, name="sgd", lr=0.05, clip_norm=0.3)
    wrong = trainer_errors(agent, exact, tmp_path, mutation=[NO_CORRECTION])
    assert wrong and wrong[0].startswith("norm of step 1"), wrong
