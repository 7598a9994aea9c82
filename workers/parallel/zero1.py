"""Row shards of replicated tensors, for optimizer states of ZeRO stage 1 (Rajbhandari et al. 2020)."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from regroup.workers.torch_internals.collectives import all_gather_single


class RowPartition:
    """Splits tensors along the first dimension over a mesh of one axis, like `torch.chunk`: the last parts may be
    smaller or empty."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self._mesh, self._rank, self._count = mesh, mesh.get_local_rank(), mesh.size()

    def of(self, tensor: Tensor) -> Tensor:
        """Return this rank's rows."""
        return self._part(tensor, self._rank)

    def empty_like(self, tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Return a tensor without values of the same global shape. Each rank holds only its rows."""
        part = torch.empty_like(self.of(tensor), dtype=dtype or tensor.dtype)
        return DTensor.from_local(
            part, self._mesh, [Shard(0)], run_check=False, shape=tensor.shape, stride=tensor.stride()
        )

    def gather(self, tensors: Sequence[Tensor]) -> None:
        """Gather the rows of the other ranks in one collective. All tensors have one data type."""
        sizes = [self._step(tensor) * tensor[:1].numel() for tensor in tensors]
        own = torch.zeros(sum(sizes), dtype=tensors[0].dtype, device=tensors[0].device)
        for tensor, target in zip(tensors, own.split(sizes), strict=True):
            part = self.of(tensor)
            target[: part.numel()].view_as(part).copy_(part)
        every = own.new_empty(self._count * own.numel())
        all_gather_single(every, own, self._mesh.get_group())
        for rank, parts in enumerate(every.chunk(self._count)):
            if rank != self._rank:
                for tensor, received in zip(tensors, parts.split(sizes), strict=True):
                    part = self._part(tensor, rank)
                    part.copy_(received[: part.numel()].view_as(part))

    def _part(self, tensor: Tensor, rank: int) -> Tensor:
        begin = min(rank * self._step(tensor), len(tensor))
        return tensor[begin : begin + self._step(tensor)]

    def _step(self, tensor: Tensor) -> int:
        return -(-len(tensor) // self._count)
