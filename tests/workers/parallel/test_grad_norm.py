"""Norms and clipping as in torch, and options that sharded optimizers do not support."""

import pytest
import torch
from torch import nn

from regroup.workers.parallel.grad_norm import clip_factor, clip_grad_norm_, squared_norm
from regroup.workers.parallel.sharded_optimizers import ShardAdamW
from tests.support.machines.one_rank import one_rank


@pytest.mark.parametrize("option", ["amsgrad", "maximize", "foreach", "capturable", "differentiable"])
def test_an_option_that_it_has_not_is_refused(option: str) -> None:
    with pytest.raises(ValueError, match=f"{option}=True is not supported: use torch.optim.AdamW"):
        ShardAdamW(nn.Linear(1, 1).parameters(), lr=0.1, **{option: True})
    ShardAdamW(nn.Linear(1, 1).parameters(), lr=torch.tensor(0.1), **{option: False})


def test_without_a_gradient_there_is_nothing_to_clip() -> None:
    assert clip_grad_norm_(nn.Linear(1, 1).parameters(), 1.0) == 0.0


@pytest.mark.parametrize("limit", [0.01, 1e6])
def test_a_gradient_is_clipped_as_by_torch(limit: float) -> None:
    model = nn.Linear(3, 2, dtype=torch.float64)
    model(torch.ones(4, 3, dtype=torch.float64)).square().sum().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    expected = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    clipped = [parameter.grad for parameter in model.parameters()]
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient
    with one_rank():
        assert clip_grad_norm_(model.parameters(), limit) == pytest.approx(float(expected), rel=1e-12)
    for parameter, limited in zip(model.parameters(), clipped, strict=True):
        torch.testing.assert_close(parameter.grad, limited)


def test_without_a_limit_nothing_is_scaled_and_a_small_gradient_never_grows() -> None:
    assert [clip_factor(norm, None) for norm in (0.0, 50.0)] == [1.0, 1.0]
    assert (clip_factor(0.0, 2.0), clip_factor(1.0, 2.0)) == (1.0, 1.0)
    assert clip_factor(8.0, 2.0) == pytest.approx(0.25, rel=1e-6)


def test_copies_share_the_contribution_to_the_norm() -> None:
    assert squared_norm([torch.tensor([3.0, 4.0]), torch.tensor([2.0])], [5, 1]) == pytest.approx(25 / 5 + 4)
