"""Batch normalisation against torch's, and what it keeps between steps."""

import pytest
import torch
from torch import distributed as dist
from torch import nn

from regroup.workers.models.batch_norm import BatchNorm, forget, settle


def made(channels: int = 3) -> BatchNorm:
    norm = BatchNorm(channels, eps=1e-5, momentum=0.1)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 1.5, channels))
        norm.bias.copy_(torch.linspace(-1, 1, channels))
        norm.running_mean.zero_()
        norm.running_var.fill_(1)
    return norm


def torchs(norm: BatchNorm) -> nn.BatchNorm1d:
    theirs = nn.BatchNorm1d(norm.weight.numel(), eps=1e-5, momentum=0.1)
    theirs.load_state_dict(norm.state_dict(), strict=False)
    return theirs


def test_it_computes_what_torch_does_and_keeps_the_same() -> None:
    norm, x = made(), torch.randn(4, 5, 3, requires_grad=True)
    theirs, y = torchs(norm), x.detach().flatten(0, 1).requires_grad_()
    norm(x).square().sum().backward()
    theirs(y).square().sum().backward()
    assert torch.allclose(x.grad.flatten(0, 1), y.grad, atol=1e-5)
    assert torch.allclose(norm.weight.grad, theirs.weight.grad, atol=1e-4)
    (seen,) = norm.pop_batch_statistics()
    norm.move(seen, 1)
    assert torch.allclose(norm.running_mean, theirs.running_mean, atol=1e-6)
    assert torch.allclose(norm.running_var, theirs.running_var, atol=1e-6)
    norm.eval()
    theirs.eval()
    assert torch.allclose(norm(x).flatten(0, 1), theirs(y), atol=1e-5)


def test_statistics_move_once_a_step_by_the_mean_of_its_batches() -> None:
    norm = made(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        norm.group = dist.group.WORLD
        norm(torch.tensor([[100.0], [300.0]]))
        forget([norm])
        for mean in (1.0, 2.0, 6.0):
            norm(torch.tensor([[mean - 1], [mean + 1]]))
        assert norm.running_mean.item() == 0, "not before the step is known to be good"
        settle([norm])
    finally:
        dist.destroy_process_group()
    assert norm.running_mean.item() == pytest.approx(0.1 * 3)
    assert norm.running_var.item() == pytest.approx(0.9 + 0.1 * 2)
    assert norm.pop_batch_statistics() == []


def test_in_bf16_it_computes_in_float32_and_gives_bf16() -> None:
    norm, x = made(), torch.randn(64, 3)
    low = norm(x.bfloat16())
    assert low.dtype == torch.bfloat16
    assert torch.allclose(low.float(), norm(x), atol=0.05)
