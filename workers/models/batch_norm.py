"""Batch normalisation (Ioffe and Szegedy 2015) whose result does not know the layout.

A batch is a micro-batch, the unit that is dealt to ranks, or all samples of a step. Running statistics move once a
step, by the mean over its micro-batches; who computed which of them does not matter.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed import nn as collectives
from torch.distributed.tensor import DTensor


class BatchNorm(nn.Module):
    """Over all dimensions but the last, which are channels."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, *, eps: float, momentum: float, is_shared: bool = False) -> None:
        """
        Args:
            momentum: how far running statistics move to those of a step.
            is_shared: a batch is what all data ranks compute at once, not each its own.
        """
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(channels)), nn.Parameter(torch.empty(channels))
        self.register_buffer("running_mean", torch.empty(channels))
        self.register_buffer("running_var", torch.empty(channels))
        self.group: dist.ProcessGroup | None = None
        """Group of the data ranks; None if there is only one."""
        self._eps, self._momentum, self.is_shared = eps, momentum, is_shared
        self._seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        """x: (…, channels). Computed in at least float32."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        if self.training:
            mean, variance = self._moments(wide)
        else:
            mean, variance = self.running_mean, self.running_var
        y = (wide - mean) * torch.rsqrt(variance + self._eps)
        return (y * self.weight.to(y.dtype) + self.bias.to(y.dtype)).to(x.dtype)

    def move(self, total: Tensor, count: int) -> None:
        """Move the running statistics to the mean of `count` batches, whose (2, channels) means and variances have
        this total."""
        for running, value in zip((self.running_mean, self.running_var), total / count, strict=True):
            _local(running).lerp_(value.to(running.dtype), self._momentum)

    def pop_batch_statistics(self) -> list[Tensor]:
        """Means and variances (2, channels) of the batches since the last call."""
        seen, self._seen = self._seen, []
        return seen

    def _moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        dims, count = tuple(range(x.dim() - 1)), x.numel() // x.shape[-1]
        mean = self._over_ranks(x.mean(dims))
        variance = self._over_ranks((x - mean).square().mean(dims))
        count *= self.group.size() if self.is_shared and self.group is not None else 1
        with torch.no_grad():
            self._seen.append(torch.stack([_local(mean), _local(variance) * (count / max(count - 1, 1))]))
        return mean, variance

    def _over_ranks(self, mean: Tensor) -> Tensor:
        if not self.is_shared or self.group is None:
            return mean
        return collectives.functional.all_reduce(mean, group=self.group) / self.group.size()


def batch_norms(model: nn.Module) -> list[BatchNorm]:
    """Return the batch norms of a model, in order."""
    return [module for module in model.modules() if isinstance(module, BatchNorm)]


def forget(norms: Iterable[BatchNorm]) -> None:
    """Discard the statistics of a discarded step."""
    for norm in norms:
        norm.pop_batch_statistics()


@torch.no_grad()
def settle(norms: Sequence[BatchNorm]) -> None:
    """Update the running statistics at the end of a step.

    A collective of their group, whose ranks have the same modules and saw the same number of batches.
    """
    if not norms:
        return
    group = norms[0].group
    assert group is not None, "the engine sets it"
    seen = [norm.pop_batch_statistics() for norm in norms]
    sums = [torch.stack(batches).sum(0) for batches in seen]
    flat = torch.cat([value.flatten() for value in sums])
    dist.all_reduce(flat, group=group)
    parts = flat.split([value.numel() for value in sums])
    for norm, batches, part, value in zip(norms, seen, parts, sums, strict=True):
        norm.move(part.view_as(value), len(batches) * group.size())


def _local(tensor: Tensor) -> Tensor:
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()
