"""Norm and clipping on the memory a rank holds.

All of it is elementwise or a sum, so nothing has to go through DTensor's dispatch, which costs every rank a quarter of
a second at its first step and some of every later one. Only the squared norm crosses ranks, with the control
all-reduce.
"""

import math
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from regroup.workers.parallel.mesh import Alike, box_of, local

_CLIP_EPS = 1e-6  # as torch.nn.utils.clip_grad_norm_ has it


def copies_of(parameters: Iterable[nn.Parameter], alike: Alike | None = None) -> list[int]:
    """How many ranks hold the same part of each parameter; of one that is not split, the ranks `alike` (all, if
    absent)."""
    return [box_of(parameter, alike).copies for parameter in parameters]


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
