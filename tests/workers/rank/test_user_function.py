"""A user's training function draws with the job's seed, also while its module is imported."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from regroup.workers.contract.rank_config import RankConfig
from regroup.workers.rank import user_function
from regroup.workers.rank.context import Context

SOURCE = """
import random
import numpy, torch
at_import = [random.random(), float(numpy.random.random()), float(torch.rand(()))]
def train(run):
    run.drawn = [*at_import, random.random(), float(numpy.random.random()), float(torch.rand(()))]
"""


def test_numbers_that_a_module_draws_while_it_is_imported_follow_the_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    drawn: list[Any] = []
    for number, seed in enumerate((5, 5, 6)):
        name = f"drawing_{number}"
        (tmp_path / f"{name}.py").write_text(SOURCE)
        config = RankConfig(function=f"{name}:train", seed=seed)
        run = SimpleNamespace(phase=lambda name: None, config=config, device=torch.device("cpu"), drawn=None)
        user_function.train(cast(Context, run))
        drawn.append(run.drawn)
        del sys.modules[name]
    assert drawn[0] == drawn[1]
    assert not set(drawn[0]) & set(drawn[2])
    assert drawn[0][:3] == drawn[0][3:], "the function starts with the same state, whatever its module drew"
