"""Tensor parallelism by the plan of a model's family (Shoeybi et al. 2019).

With sequence parallelism (Korthikanti et al. 2022), the residual stream between the split parts is sharded along the
sequence. Each all-reduce becomes a reduce-scatter and an all-gather.
"""

from fnmatch import fnmatchcase
from functools import partial
from typing import Any, cast

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.distributed.tensor.placement_types import Placement
from torch.nn import functional

from regroup.workers.models.roles import Plan, Role


def apply_plan(model: nn.Module, plan: Plan, mesh: DeviceMesh, *, sequence_parallel: bool) -> None:
    """Split a model on the meta device over the `tp` mesh, in place."""
    styles: dict[str, ParallelStyle] = {}
    for name, _ in model.named_modules():
        for pattern, role in plan.items():
            if fnmatchcase(name, pattern):
                styles[name] = _style(role, sequence_parallel)
    # Values are set later and equal on every rank, so send nothing.
    parallelize_module(model, mesh, styles, src_data_rank=None)


def _style(role: Role, sequence_parallel: bool) -> ParallelStyle:
    stream: Placement = Shard(1) if sequence_parallel else Replicate()
    match role:
        case Role.EMBEDDING:
            return RowwiseParallel(input_layouts=Replicate(), output_layouts=stream)
        case Role.STREAM:
            return SequenceParallel() if sequence_parallel else _Replicated()
        case Role.SPLIT | Role.TIED_HEAD:
            return _Gathered(stream)
        case Role.COLUMN:
            return ColwiseParallel()
        case Role.CHANNELS:
            return _Channels()
        case Role.ROW:
            return RowwiseParallel(output_layouts=stream)
        case Role.HEAD:
            return ColwiseParallel(input_layouts=stream, output_layouts=Shard(-1), use_local_output=False)


class _Gathered(ParallelStyle):
    """Gathers the residual stream for the module. Other arguments do not change."""

    def __init__(self, stream: Placement) -> None:
        super().__init__()
        self._stream = stream

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        # Not distribute_module, which would replicate all parameters below.
        module.register_forward_pre_hook(partial(self._enter, device_mesh))
        return module

    def _enter(self, mesh: DeviceMesh, _: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, *others = inputs
        if not isinstance(x, DTensor):
            x = DTensor.from_local(x, mesh, [self._stream], run_check=False)
        return (x.redistribute(placements=[Replicate()]), *others)


class _Replicated(ParallelStyle):
    """Parameters replicated on all ranks of the mesh, as DTensors: a snapshot then stores one copy."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        _spread(module, device_mesh, Replicate())
        if isinstance(module, nn.Conv2d):
            module.forward = partial(_convolve, module)
            return module
        module.register_forward_pre_hook(partial(self._enter, device_mesh))
        module.register_forward_hook(self._leave)
        return module

    @staticmethod
    def _enter(mesh: DeviceMesh, _: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (DTensor.from_local(inputs[0], mesh, [Replicate()], run_check=False),)

    @staticmethod
    def _leave(_: nn.Module, __: tuple[Tensor, ...], output: DTensor) -> Tensor:
        return output.to_local()


def _convolve(module: nn.Conv2d, input: Tensor) -> Tensor:
    """Convolve on local tensors. For DTensors, torch before 2.13 sums gradients of replicated weights over ranks."""
    weight, bias = (
        None if parameter is None else cast(DTensor, parameter).to_local(grad_placements=[Replicate()])
        for parameter in (module.weight, module.bias)
    )
    return functional.conv2d(
        input, cast(Tensor, weight), bias, module.stride, module.padding, module.dilation, module.groups
    )


class _Channels(ParallelStyle):
    """A shard of the channels (last dimension), with their parameters and buffers."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        _spread(module, device_mesh, Shard(0))
        module.register_forward_pre_hook(partial(self._enter, device_mesh))
        module.register_forward_hook(self._leave)
        return module

    @staticmethod
    def _enter(mesh: DeviceMesh, _: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (DTensor.from_local(inputs[0], mesh, [Shard(inputs[0].dim() - 1)], run_check=False),)

    @staticmethod
    def _leave(_: nn.Module, __: tuple[Tensor, ...], output: DTensor) -> Tensor:
        return output.to_local()


def _spread(module: nn.Module, mesh: DeviceMesh, placement: Placement) -> None:
    """Distribute the parameters and buffers of the module itself, on the meta device."""
    for name, parameter in list(module.named_parameters(recurse=False)):
        spread = distribute_tensor(parameter.detach(), mesh, [placement], src_data_rank=None)
        module.register_parameter(name, nn.Parameter(spread))
    for name, buffer in list(module.named_buffers(recurse=False)):
        module.register_buffer(name, distribute_tensor(buffer, mesh, [placement], src_data_rank=None))
