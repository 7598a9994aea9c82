"""Canonical names of parameters and buffers."""

import torch
from torch import nn

from regroup.workers.parallel.parameter_names import buffers_of, canonical, parameters_of
from regroup.workers.torch_internals.sharding import recompute_in_backward


def wrapped() -> nn.Module:
    block = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    block.register_buffer("scratch", torch.zeros(1), persistent=False)
    return nn.ModuleDict({"layers": recompute_in_backward(block, None)})


def test_names_are_those_without_wrappers() -> None:
    assert canonical("module.layers.0._checkpoint_wrapped_module.norm.weight") == "layers.0.norm.weight"
    assert [name for name, _ in parameters_of(wrapped())] == [
        "layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias",
    ]  # fmt: skip


def test_buffers_that_persist_are_found_behind_a_wrapper_and_others_not() -> None:
    found = [name for name, _ in buffers_of(wrapped())]
    assert found == ["layers.1.running_mean", "layers.1.running_var", "layers.1.num_batches_tracked"]
