"""Options that sharded optimizers do not support."""

import pytest
import torch
from torch import nn

from regroup.workers.parallel.grad_norm import clip_grad_norm_
from regroup.workers.parallel.sharded_optimizers import ShardAdamW


@pytest.mark.parametrize("option", ["amsgrad", "maximize", "foreach", "capturable", "differentiable"])
def test_an_option_that_it_has_not_is_refused(option: str) -> None:
    with pytest.raises(ValueError, match=f"{option}=True is not supported: use torch.optim.AdamW"):
        ShardAdamW(nn.Linear(1, 1).parameters(), lr=0.1, **{option: True})
    ShardAdamW(nn.Linear(1, 1).parameters(), lr=torch.tensor(0.1), **{option: False})


def test_without_a_gradient_there_is_nothing_to_clip() -> None:
    assert clip_grad_norm_(nn.Linear(1, 1).parameters(), 1.0) == 0.0
