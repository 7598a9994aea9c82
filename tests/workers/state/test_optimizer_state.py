"""Parameter groups that cannot be those of the saved state are refused."""

from typing import Any

import pytest
import torch
from torch import nn

from regroup.workers.state.optimizer_state import OptimizerState
from regroup.workers.state.state_error import StateError

VALUES = {"values": {"lr": 0.2}}


@pytest.mark.parametrize("added", [{}, {"members": [""]}, {"members": ["gone"]}, {"members": ["bias", "weight"]}])
def test_a_group_is_added_only_with_parameters_that_are_here_and_in_no_group(added: dict[str, Any]) -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD([model.weight], lr=0.1)
    state = OptimizerState("optimizer", optimizer)
    with pytest.raises(StateError, match="2 parameter groups of 'optimizer', but the optimizer has 1"):
        state.add_groups([VALUES, VALUES | added], dict(model.named_parameters()), is_stage=False)
    assert len(optimizer.param_groups) == 1
    state.add_groups([VALUES, VALUES | {"members": ["bias"]}], dict(model.named_parameters()), is_stage=False)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.2]


def test_fewer_groups_than_the_optimizer_has_are_refused() -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD([{"params": [model.weight]}, {"params": [model.bias]}], lr=0.1)
    with pytest.raises(StateError, match="1 parameter groups of 'optimizer', but the optimizer has 2"):
        OptimizerState("optimizer", optimizer).add_groups([VALUES], dict(model.named_parameters()), is_stage=False)


def test_the_first_entry_that_cannot_be_kept_is_named() -> None:
    class More(torch.optim.SGD):
        def state_dict(self) -> dict[str, Any]:
            return {**super().state_dict(), "second": 2, "first": 1}

    with pytest.raises(StateError, match="has an entry 'first' next to state and param_groups"):
        OptimizerState("optimizer", More(nn.Linear(1, 1).parameters(), lr=0.1)).check()
