"""Norm, clipping and AdamW on the memory a rank holds.

All of it is elementwise or a sum, so nothing has to go through DTensor's dispatch, which costs every rank a quarter of
a second at its first step and some of every later one. Only the squared norm crosses ranks, with the control
all-reduce.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.adamw import adamw

from regroup.workers.parallel.mesh import box_of, local, zeros_like

_NOT_OF_SHARDS = frozenset({"amsgrad", "maximize", "foreach", "capturable", "differentiable"})
_CLIP_EPS = 1e-6  # as torch.nn.utils.clip_grad_norm_ has it


def copies_of(parameters: Iterable[nn.Parameter]) -> list[int]:
    """How many ranks hold the same part of each parameter."""
    return [box_of(parameter).copies for parameter in parameters]


def squared_norm(gradients: list[Tensor], copies: list[int]) -> float:
    """This rank's share of the squared 2-norm of the whole gradient: summed over all ranks it is the whole.

    A part that several ranks hold alike is counted by each of them in equal shares, so the sum is right anywhere.
    """
    norms = torch._foreach_norm([local(gradient) for gradient in gradients])  # pyright: ignore[reportPrivateUsage]
    squares = torch.stack([norm.double() for norm in norms]).square()
    return float((squares / torch.tensor(copies, dtype=torch.float64, device=squares.device)).sum())


def scale(gradients: list[Tensor], factor: float) -> None:
    """Multiply gradients in place; by exactly 1 nothing is touched."""
    if factor != 1.0:
        torch._foreach_mul_([local(gradient) for gradient in gradients], factor)  # pyright: ignore[reportPrivateUsage]


def clip_factor(norm: float, limit: float | None) -> float:
    """What gradients of this norm are multiplied with so that it does not exceed `limit`."""
    return 1.0 if limit is None else min(1.0, limit / (norm + _CLIP_EPS))


def clip_grad_norm_(parameters: Iterable[nn.Parameter], max_norm: float) -> float:
    """What `torch.nn.utils.clip_grad_norm_` does to sharded and to replicated gradients; returns their 2-norm.

    A collective: all ranks call it, once their gradients are those of the whole batch.
    """
    trained = [parameter for parameter in parameters if parameter.grad is not None]
    gradients = [parameter.grad for parameter in trained if parameter.grad is not None]
    if not gradients:
        return 0.0
    total = torch.tensor(squared_norm(gradients, copies_of(trained)), dtype=torch.float64, device=gradients[0].device)
    dist.all_reduce(total)
    norm = math.sqrt(float(total))
    scale(gradients, clip_factor(norm, max_norm))
    return norm


def make_optimizer(model: nn.Module, config: Mapping[str, Any]) -> "ShardAdamW":
    """AdamW as the spec has it; norms and other vectors are not decayed."""
    parameters = list(model.parameters())
    return ShardAdamW(
        [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": config["weight_decay"]},
            {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
        ],
        lr=config["lr"],
        betas=tuple(config["betas"]),
        eps=config["eps"],
        fused=True,
    )


class ShardAdamW(AdamW):
    """AdamW (Loshchilov and Hutter 2019) that updates local shards; its state has the parameters' sharding.

    Raises:
        ValueError: an option that it has not.
    """

    def __init__(self, params: Any, **options: Any) -> None:
        if odd := sorted(name for name in options.keys() & _NOT_OF_SHARDS if options[name]):
            raise ValueError(f"{odd[0]}={options[odd[0]]!r} is not offered here: use torch.optim.AdamW for that")
        options["fused"] = True
        super().__init__(params, **options)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update from the gradients that are there."""
        assert closure is None, "closures would need gradients here"
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            states = [self._state_of(parameter) for parameter in parameters]
            if parameters:
                adamw(
                    [local(parameter) for parameter in parameters],
                    [local(parameter.grad) for parameter in parameters],
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

    def _state_of(self, parameter: nn.Parameter) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"] = zeros_like(parameter)
            state["exp_avg_sq"] = zeros_like(parameter)
        return state
