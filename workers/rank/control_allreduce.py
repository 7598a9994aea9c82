"""The sum of a few numbers over all ranks, as every step needs one.

A ring, which gloo takes for an all-reduce of any size, sends each part of them around twice: 2 (N - 1) turns one after
the other, and messages from everybody in each. A few numbers are gathered by one rank, summed in the order of the
ranks, and broadcast through a tree: 1 + log2 N turns and 2 (N - 1) messages in all. Nobody has the sum before everybody
has said its part, as with an all-reduce.
"""

import torch
from torch import Tensor
from torch import distributed as dist

_ROOT = 0


def control_sum(own: Tensor) -> Tensor:
    """The sum of `own`, of one shape and type, over all ranks: the same bits on each.

    A collective of the default group, whose backend must take tensors of this device. It may be left in `own`.
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
