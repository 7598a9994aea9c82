"""Gradient norm and clipping on local shards.

All operations are elementwise or sums, so they bypass DTensor's dispatch. That dispatch costs each rank a quarter of a
second in its first step, and some time in every later one. Only the squared norm crosses ranks, in the control
all-reduce.
"""

import math
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from regroup.workers.parallel.mesh import Alike, box_of, local
from regroup.workers.torch_internals.operations import multiply_all_, norms_of

_CLIP_EPS = 1e-6  # as torch.nn.utils.clip_grad_norm_ has it


def copies_of(parameters: Iterable[nn.Parameter], alike: Alike | None = None) -> list[int]:
    """Return the number of ranks that hold the same region of each parameter. `alike`: holders of unsharded ones; all
    if None."""
    return [box_of(parameter, alike).copies for parameter in parameters]


def squared_norm(gradients: list[Tensor], copies: list[int]) -> float:
    """Return this rank's contribution to the squared 2-norm of the global gradient.

    The sum over all ranks is the squared norm. Ranks that hold copies of a region contribute equal shares of it.
    """
    norms = norms_of([local(gradient) for gradient in gradients])
    squares = torch.stack([norm.double() for norm in norms]).square()
    return float((squares / torch.tensor(copies, dtype=torch.float64, device=squares.device)).sum())


def scale(gradients: list[Tensor], factor: float) -> None:
    """Multiply gradients in place. A factor of exactly 1 changes nothing."""
    if factor != 1.0:
        multiply_all_([local(gradient) for gradient in gradients], factor)


def clip_factor(norm: float, limit: float | None) -> float:
    """Return the factor that reduces a gradient norm to at most `limit`."""
    return 1.0 if limit is None else min(1.0, limit / (norm + _CLIP_EPS))


def clip_grad_norm_(parameters: Iterable[nn.Parameter], max_norm: float) -> float:
    """Clip gradients like `torch.nn.utils.clip_grad_norm_`, sharded or replicated, and return their 2-norm.

    A collective: all ranks call it after their gradients are summed over the whole batch.
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
