"""Tests of the figures of a job that saves a state which is mostly frozen."""

from typing import Any

import pytest

from benchmarks.peers.adapter_loop import AdaptedLayer
from benchmarks.tiers.unchanged_job import AdapterModel, read_job
from benchmarks.trials.trial import TrialError

MODEL = AdapterModel.of(1.0)


def saved(written: int) -> dict[str, Any]:
    return {"type": "checkpoint", "data": {"written_bytes": written, "size_bytes": 1000, "duration_s": 0.5}}


@pytest.mark.parametrize("state_gb", [0.1, 1.0, 4.0])
def test_nine_tenths_of_the_state_are_frozen(state_gb: float) -> None:
    import torch

    model = AdapterModel.of(state_gb)
    assert model.frozen_bytes / model.state_bytes == pytest.approx(0.9, abs=0.005)
    assert model.state_bytes == pytest.approx(state_gb * 1e9, rel=0.1)
    with torch.device("meta"):
        layer = AdaptedLayer(model.width, model.rank)
    sizes = {name: parameter.numel() * (12 if parameter.requires_grad else 4)
             for name, parameter in layer.named_parameters()}  # fmt: skip
    assert sum(sizes.values()) * model.layers == model.state_bytes


def test_the_second_checkpoint_counts_against_the_first() -> None:
    found = read_job(MODEL, [{"type": "note", "data": {}}, saved(1000), saved(110)])
    assert found.bytes_ratio == pytest.approx(0.11)
    assert found.stored_bytes == (1000, 1000)


def test_another_number_of_checkpoints_is_an_error() -> None:
    with pytest.raises(TrialError, match="saved 1"):
        read_job(MODEL, [saved(1000)])
