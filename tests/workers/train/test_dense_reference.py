"""The built-in trainer against a dense reference that shares no code with it."""

from pathlib import Path
from typing import Any

import pytest

from regroup.workers.contract.rank_config import RankConfig
from tests.support.inputs.rank_configs import changed
from tests.workers.reference_runs import trainer_config, trainer_errors, trainer_reference, write_records


@pytest.mark.parametrize(
    ("optimizer", "tied"),
    [({"name": "adamw", "lr": 0.01, "clip_norm": 1.0}, False), ({"name": "sgd", "lr": 0.05, "clip_norm": 0.3}, True)],
    ids=["adamw", "sgd, tied"],
)
def test_losses_norms_and_parameters_are_those_of_the_formulas(
    agent: Any, config: RankConfig, tmp_path: Path, optimizer: dict[str, Any], tied: bool
) -> None:
    exact = changed(trainer_config(config, precision="fp64", steps=4, **optimizer), model={"tie_embeddings": tied})
    assert trainer_errors(agent, exact, tmp_path) == []


def test_in_float16_the_same_steps_overflow_and_the_others_are_near(
    agent: Any, config: RankConfig, tmp_path: Path
) -> None:
    half = trainer_config(config, precision="fp16", steps=9, name="sgd", lr=0.05, momentum=0.9, clip_norm=None)
    skipped = [step.is_skipped for step in trainer_reference(half, write_records(tmp_path))]
    assert skipped[0] and not skipped[-1] and any(skipped[skipped.index(False) :]), "the scale falls, and grows again"
    assert trainer_errors(agent, half, tmp_path) == []
