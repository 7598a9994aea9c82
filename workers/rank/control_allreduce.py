"""An all-reduce of a few numbers, as every step needs one.

For all-reduces of any size, gloo uses a ring: 2 (N - 1) sequential turns, in each of which all ranks send. Here, one
rank gathers the numbers, sums them in rank order and broadcasts the sum through a tree. That takes 1 + log2 N turns
and 2 (N - 1) messages in total. As in any all-reduce, no rank has the sum before all ranks have contributed.
"""

import torch
from torch import Tensor
from torch import distributed as dist

_ROOT = 0


def control_sum(own: Tensor) -> Tensor:
    """Return the sum of `own` over all ranks, bitwise equal on all of them.

    Args:
        own: tensor of the same shape and type on all ranks. The sum may overwrite it.

    This is a collective of the default group, whose backend must accept tensors of this device.
    """
    if own.device.type != "cpu":
        dist.all_reduce(own)  # NCCL takes trees by itself
        return own
    if dist.get_rank() != _ROOT:
        dist.gather(own, dst=_ROOT)
        dist.broadcast(own, _ROOT)
        return own
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.gather(own, parts, dst=_ROOT)
    total = torch.stack(parts).sum(dim=0)
    dist.broadcast(total, _ROOT)
    return total
