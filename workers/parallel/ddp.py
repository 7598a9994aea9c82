"""Replicas whose gradients are summed in buckets that do not depend on how often a process was started.

A collective adds the ranks' values in an order that depends on where in a bucket an element lies, and
DistributedDataParallel regroups its buckets after the first backward of a process, in the order in which gradients
arrived: a rank that was restarted would sum its first step otherwise than the run that nothing happened to. So the
first backward is one that computes nothing, in an order of our own, before the first step.
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


def replicate(model: nn.Module, mesh: DeviceMesh, strategy: Strategy) -> nn.Module:
    """The model with gradients summed over the mesh, and never averaged."""
    replicated = DistributedDataParallel(
        model,
        process_group=mesh.get_group(),
        forward_sync_buffers=False,
        init_sync=False,
        gradient_as_bucket_view=True,
        bucket_cap_mb=strategy.bucket_mib,
        find_unused_parameters=strategy.find_unused_parameters,
    )
    sums = _Sums(reduce_dtype(strategy.precision, strategy.reduce))
    replicated.register_comm_hook(sums, _sum_hook)
    _group_buckets(replicated, model)
    sums.are_on = True
    return replicated


@dataclass
class _Sums:
    """How gradients are summed."""

    dtype: torch.dtype
    are_on: bool = False


def _sum_hook(sums: _Sums, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    own = bucket.buffer()
    if not sums.are_on:
        nothing: torch.futures.Future[Tensor] = torch.futures.Future()
        nothing.set_result(own)
        return nothing
    work = dist.all_reduce(own.to(sums.dtype), op=dist.ReduceOp.SUM, async_op=True)
    assert work is not None

    def value(future: torch.futures.Future[Any]) -> Tensor:
        return cast(list[Tensor], future.value())[0].to(own.dtype)

    return cast("torch.futures.Future[Tensor]", work.get_future().then(value))


def _group_buckets(replicated: DistributedDataParallel, model: nn.Module) -> None:
    """A backward through nothing: gradients of zero, those of the last parameters first, as in a real one."""
    parameters = list(model.parameters())
    model.forward = lambda: torch.stack([parameter.sum() for parameter in parameters]).sum() * 0
    try:
        with torch.enable_grad():
            replicated().backward()
    finally:
        vars(model).pop("forward")
    replicated.zero_grad()
