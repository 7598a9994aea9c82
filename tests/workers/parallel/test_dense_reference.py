"""The engine against a dense reference that shares no code with it, with odd numbers of micro-batches."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from regroup.workers.contract.rank_config import ParallelConfig, RankConfig
from tests.workers.parity_loop import COUNT, compare
from tests.workers.reference_runs import LIMIT, SCALAR_LIMIT, Split, engine_config, engine_errors, engine_reference

SPLITS: dict[str, Split] = {
    "one rank": ("fsdp", {"dp_shard": 1}, {}),
    "ddp2": ("ddp", {"dp_replicate": 2}, {}),
    "pp2": ("fsdp", {"pp": 2}, {"schedule": "1f1b"}),
    "gpipe": ("fsdp", {"pp": 2}, {"schedule": "gpipe"}),
    "interleaved": ("fsdp", {"pp": 2}, {"schedule": "interleaved_1f1b"}),
    "interleaved zero bubble": ("fsdp", {"pp": 2}, {"schedule": "interleaved_zero_bubble"}),
    "zbv": ("fsdp", {"pp": 2}, {"schedule": "zbv"}),
    "pp2 x ddp2": ("ddp", {"pp": 2, "dp_replicate": 2}, {"schedule": "1f1b"}),
}
CASES = [
    ("one rank", 3, True),
    ("one rank", 1, False),
    ("ddp2", 5, True),
    ("pp2", 3, False),
    ("zbv", 3, False),
    pytest.param("gpipe", 5, False, marks=pytest.mark.slow),
    pytest.param("interleaved", 3, False, marks=pytest.mark.slow),
    pytest.param("interleaved zero bubble", 3, False, marks=pytest.mark.slow),
    pytest.param("pp2 x ddp2", 6, False, marks=pytest.mark.slow),
]
"""Layout, micro-batches of a step, and whether the head is tied. `ddp2` and `pp2 x ddp2` compute three on each rank."""


@pytest.mark.parametrize(("name", "count", "tied"), CASES)
def test_a_layout_computes_what_the_formulas_say(
    agent: Any, config: RankConfig, tmp_path: Path, name: str, count: int, tied: bool
) -> None:
    optimizers = ("adamw", "sgd") if name == "one rank" else ("sgd",)
    exact = engine_config(config, tied=tied)
    assert engine_errors(agent, exact, SPLITS[name], tmp_path, count=count, optimizers=optimizers) == []


@pytest.mark.parametrize("tied", [False, True])
def test_the_reference_of_the_parity_tests_is_that_of_the_formulas(
    agent: Any, config: RankConfig, tmp_path: Path, tied: bool
) -> None:
    file, exact = tmp_path / "reference", engine_config(config, tied=tied)
    exact = replace(exact, args={"reference": str(file)}, parallel=ParallelConfig("fsdp"))
    assert agent.run(exact, 1, "dense", entry="parity_loop:dense").codes == [0]
    found, expected = torch.load(file, weights_only=True), engine_reference(exact, ("adamw", "sgd"), COUNT)
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        errors = compare(found[key], values)
        assert errors["gradients"].keys() == errors["parameters"].keys() == values[2].keys()
        assert max(errors["loss"], errors["norm"]) <= SCALAR_LIMIT
        assert max(*errors["gradients"].values(), *errors["parameters"].values()) <= LIMIT
