"""DDP with gradient buckets that do not depend on restarts.

The order in which a collective adds the ranks' values depends on an element's position in its bucket. After the first
backward of a process, DistributedDataParallel regroups its buckets in the order in which gradients arrived. A restarted
rank would thus sum its first step in a different order. So an artificial backward pass, in a fixed order and without
computation, runs before the first step.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from regroup.workers.parallel.precision import reduce_dtype
from regroup.workers.parallel.strategy import Strategy
from regroup.workers.torch_internals.replication import without_buffer_broadcast


def replicate(model: nn.Module, mesh: DeviceMesh, strategy: Strategy, *, will_train: bool) -> nn.Module:
    """Return the model in DDP. Gradients are summed over the mesh and never averaged.

    Args:
        will_train: there will be a backward pass.
    """
    replicated = DistributedDataParallel(
        model,
        process_group=mesh.get_group(),
        init_sync=False,
        gradient_as_bucket_view=True,
        bucket_cap_mb=strategy.bucket_mib,
        find_unused_parameters=strategy.find_unused_parameters,
        **without_buffer_broadcast(),
    )
    sums = _Sums(reduce_dtype(strategy.precision, strategy.reduce))
    replicated.register_comm_hook(sums, _sum_hook)
    if will_train:
        _group_buckets(replicated, model)
    sums.are_on = True
    return replicated


@dataclass
class _Sums:
    """State of the communication hook that sums gradients."""

    dtype: torch.dtype
    are_on: bool = False


def _sum_hook(sums: _Sums, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    own = bucket.buffer()
    if not sums.are_on:
        nothing: torch.futures.Future[Tensor] = torch.futures.Future()
        nothing.set_result(own)
        return nothing
    summed = own.to(sums.dtype)
    work = dist.all_reduce(summed, op=dist.ReduceOp.SUM, async_op=True)
    assert work is not None

    def value(future: torch.futures.Future[Any]) -> Tensor:
        found = cast("list[Tensor] | None", future.value()) or [summed]  # the fake group of the warm-up has no value
        return found[0].to(own.dtype)

    return cast("torch.futures.Future[Tensor]", work.get_future().then(value))


def _group_buckets(replicated: DistributedDataParallel, model: nn.Module) -> None:
    """Run a backward pass with zero gradients, from the last parameters to the first, as in a real one."""
    parameters = list(model.parameters())
    model.forward = lambda: torch.stack([parameter.sum() for parameter in parameters]).sum() * 0
    try:
        with torch.enable_grad():
            replicated().backward()
    finally:
        vars(model).pop("forward")
    replicated.zero_grad()
