"""Optimizers on local shards, without DTensor's dispatch, as in `grad_norm.py`."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.adamw import adamw

from regroup.workers.contract.rank_config import OptimizerConfig
from regroup.workers.parallel.mesh import empty_like, local
from regroup.workers.parallel.zero1 import RowPartition

_UNSUPPORTED = frozenset({"amsgrad", "maximize", "foreach", "capturable", "differentiable"})


def make_optimizer(
    model: nn.Module, config: OptimizerConfig, rows: RowPartition | None = None
) -> "ShardAdamW | ShardSGD":
    """Return the optimizer of the spec. Norms and other vectors have no weight decay. With `rows`, the state of each
    parameter is sharded by rows."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    if config.name == "sgd":
        return ShardSGD(groups, rows=rows, lr=config.lr, momentum=config.momentum)
    return ShardAdamW(groups, rows=rows, lr=config.lr, betas=config.betas, eps=config.eps)


class _OnShards:
    """The part of each parameter that this rank updates."""

    rows: RowPartition | None

    def part(self, tensor: Tensor) -> Tensor:
        """Return this rank's shard, or its rows of a replicated tensor."""
        return local(tensor) if self.rows is None else self.rows.of(tensor.detach())

    def state_like(self, parameter: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Return a tensor without values that has the sharding of this optimizer's state of a parameter."""
        return empty_like(parameter, dtype) if self.rows is None else self.rows.empty_like(parameter.detach(), dtype)

    def complete(self, parameters: list[nn.Parameter]) -> None:
        """Gather all rows on every rank after an update."""
        if self.rows is not None:
            self.rows.gather([parameter.detach() for parameter in parameters])


class ShardAdamW(_OnShards, AdamW):
    """AdamW (Loshchilov and Hutter 2019) that updates local shards. Its state has the sharding of the parameters.

    Raises:
        ValueError: an option that it does not support.
    """

    def __init__(self, params: Any, *, rows: RowPartition | None = None, **options: Any) -> None:
        if unsupported := sorted(name for name in options.keys() & _UNSUPPORTED if options[name]):
            raise ValueError(f"{unsupported[0]}={options[unsupported[0]]!r} is not supported: use torch.optim.AdamW")
        options["fused"] = True
        self.rows = rows
        super().__init__(params, **options)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update the parameters from their gradients."""
        assert closure is None, "closures are not supported"
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
            state["exp_avg"] = _zeroed(self.state_like(parameter))
            state["exp_avg_sq"] = _zeroed(self.state_like(parameter))
        return state


class ShardSGD(_OnShards, SGD):
    """SGD with momentum (Sutskever et al. 2013) that updates local shards. Its state has the sharding of the
    parameters.

    The momentum buffer starts at zero, so it exists, and is saved, from the first step on.
    """

    def __init__(self, params: Any, *, lr: float, momentum: float, rows: RowPartition | None = None) -> None:
        self.rows = rows
        super().__init__(params, lr=lr, momentum=momentum, foreach=False)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update the parameters from their gradients."""
        assert closure is None, "closures are not supported"
        for group, parameters in _with_gradients(self):
            for parameter in parameters:
                part, change = self.part(parameter), self.part(_gradient(parameter))
                if group["weight_decay"]:
                    change = change.add(part, alpha=group["weight_decay"])
                if group["momentum"]:
                    state = self.state[parameter]
                    if not state:
                        state["momentum_buffer"] = _zeroed(self.state_like(parameter))
                    change = local(state["momentum_buffer"]).mul_(group["momentum"]).add_(change)
                part.add_(change, alpha=-group["lr"])
            self.complete(parameters)


def _zeroed(tensor: Tensor) -> Tensor:
    """Set the local part of a tensor to zero, without DTensor's dispatch, and return the tensor."""
    local(tensor).zero_()
    return tensor


def _with_gradients(optimizer: Optimizer) -> list[tuple[dict[str, Any], list[nn.Parameter]]]:
    found = [(group, [p for p in group["params"] if p.grad is not None]) for group in optimizer.param_groups]
    return [(group, parameters) for group, parameters in found if parameters]


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
