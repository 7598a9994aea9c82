"""Costs of blocks: layers outside the blocks count with the first and the last one."""

import torch
from torch import nn

from regroup.workers.models import build_model
from regroup.workers.parallel.block_costs import block_costs, step_flops

CONVNET = {
    "family": "convnet", "channels": 2, "classes": 24, "dim": 8, "layers": 4, "ffn_dim": 16,
    "norm_over": "micro_batch", "norm_eps": 1e-5, "norm_momentum": 0.1,
}  # fmt: skip


def build(layers: int = 4) -> nn.Module:
    return build_model(CONVNET | {"layers": layers}, 24)


def test_the_first_and_the_last_block_include_what_is_outside() -> None:
    example = torch.empty(3, 2, 6, 6, device="meta")
    first, *inner, last = block_costs(build, example)
    assert len(set(inner)) == 1, "equal blocks cost the same"
    stem, head = first - inner[0], last - inner[0]
    assert (stem, head) == (2 * 3 * 36 * 8 * 2 * 9, 2 * 3 * 8 * 24), "a convolution of 3 × 3, and a matrix"
    assert step_flops(build, example) == 3 * int(first + sum(inner) + last)


def test_one_block_has_everything() -> None:
    example = torch.empty(3, 2, 6, 6, device="meta")
    (only,) = block_costs(lambda: build(1), example)
    assert step_flops(lambda: build(1), example) == 3 * int(only)
