"""Optimizers on the memory a rank holds: as `grad_norm.py`, without DTensor's dispatch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.adamw import adamw

from regroup.workers.contract.rank_config import OptimizerConfig
from regroup.workers.parallel.mesh import local, zeros_like
from regroup.workers.parallel.zero1 import RowPartition

_NOT_OF_SHARDS = frozenset({"amsgrad", "maximize", "foreach", "capturable", "differentiable"})


def make_optimizer(
    model: nn.Module, config: OptimizerConfig, rows: RowPartition | None = None
) -> "ShardAdamW | ShardSGD":
    """The optimizer as the spec has it; norms and other vectors are not decayed. With `rows` its state is of some rows
    of each parameter alone."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    if config.name == "sgd":
        return ShardSGD(groups, rows=rows, lr=config.lr, momentum=config.momentum)
    return ShardAdamW(groups, rows=rows, lr=config.lr, betas=config.betas, eps=config.eps)


class _OnShards:
    """What is updated of a parameter on this rank."""

    rows: RowPartition | None

    def part(self, tensor: Tensor) -> Tensor:
        """This rank's shard, or its rows of what all ranks have."""
        return local(tensor) if self.rows is None else self.rows.of(tensor.detach())

    def state_like(self, parameter: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Zeros with the sharding that this optimizer's state of a parameter has."""
        return zeros_like(parameter, dtype) if self.rows is None else self.rows.zeros_like(parameter.detach(), dtype)

    def complete(self, parameters: list[nn.Parameter]) -> None:
        """After an update: every rank has all rows again."""
        if self.rows is not None:
            self.rows.gather([parameter.detach() for parameter in parameters])


class ShardAdamW(_OnShards, AdamW):
    """AdamW (Loshchilov and Hutter 2019) that updates local shards; its state has the parameters' sharding.

    Raises:
        ValueError: an option that it has not.
    """

    def __init__(self, params: Any, *, rows: RowPartition | None = None, **options: Any) -> None:
        if odd := sorted(name for name in options.keys() & _NOT_OF_SHARDS if options[name]):
            raise ValueError(f"{odd[0]}={options[odd[0]]!r} is not offered here: use torch.optim.AdamW for that")
        options["fused"] = True
        self.rows = rows
        super().__init__(params, **options)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update from the gradients that are there."""
        assert closure is None, "closures would need gradients here"
        for group, parameters in _with_gradients(self):
            states = [self._state_of(parameter) for parameter in parameters]
            adamw(
                [self.part(parameter) for parameter in parameters],
                [self.part(_gradient(parameter)) for parameter in parameters],
                [local(state["exp_avg"]) for state in states],
                [local(state["exp_avg_sq"]) for state in states],
                [],
                [state["step"] for state in states],
                fused=True,
                amsgrad=False,
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
            )
            self.complete(parameters)

    def _state_of(self, parameter: nn.Parameter) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"] = self.state_like(parameter)
            state["exp_avg_sq"] = self.state_like(parameter)
        return state


class ShardSGD(_OnShards, SGD):
    """SGD with momentum (Sutskever et al. 2013) that updates local shards; its state has the parameters' sharding.

    The momentum begins at zero, so that it is there, and kept, from the first step on.
    """

    def __init__(self, params: Any, *, lr: float, momentum: float, rows: RowPartition | None = None) -> None:
        self.rows = rows
        super().__init__(params, lr=lr, momentum=momentum, foreach=False)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update from the gradients that are there."""
        assert closure is None, "closures would need gradients here"
        for group, parameters in _with_gradients(self):
            for parameter in parameters:
                part, change = self.part(parameter), self.part(_gradient(parameter))
                if group["weight_decay"]:
                    change = change.add(part, alpha=group["weight_decay"])
                if group["momentum"]:
                    state = self.state[parameter]
                    if not state:
                        state["momentum_buffer"] = self.state_like(parameter)
                    change = local(state["momentum_buffer"]).mul_(group["momentum"]).add_(change)
                part.add_(change, alpha=-group["lr"])
            self.complete(parameters)


def _with_gradients(optimizer: Optimizer) -> list[tuple[dict[str, Any], list[nn.Parameter]]]:
    found = [(group, [p for p in group["params"] if p.grad is not None]) for group in optimizer.param_groups]
    return [(group, parameters) for group, parameters in found if parameters]


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
