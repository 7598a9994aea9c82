"""Apply tensor and data parallelism, compilation and activation checkpointing to a model on the meta device."""

import hashlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from regroup.workers.models import Model
from regroup.workers.parallel.activation_checkpoint import recompute
from regroup.workers.parallel.compile import compile_blocks
from regroup.workers.parallel.ddp import replicate
from regroup.workers.parallel.mesh import Meshes, fill
from regroup.workers.parallel.parameter_names import buffers_of, parameters_of
from regroup.workers.parallel.precision import fsdp_policy, master_dtype
from regroup.workers.parallel.strategy import Strategy
from regroup.workers.parallel.tensor_parallel import apply_plan


def parallelize(
    model: nn.Module, meshes: Meshes, device: torch.device, strategy: Strategy, *, will_train: bool = True
) -> nn.Module:
    """Distribute the model over the meshes. Its memory on `device` is uninitialized.

    From the inside out: tensor parallelism splits modules, checkpointing and the compiler wrap blocks, and data
    parallelism wraps everything. Initialize or restore the model next.

    Args:
        will_train: there will be a backward pass. DDP prepares for it with an artificial one.
    """
    model = model.to(master_dtype(strategy.precision))
    bare = cast(Model, model)
    if meshes.tensor is not None:
        apply_plan(model, bare.tensor_plan, meshes.tensor, sequence_parallel=strategy.sequence_parallel)
        bare.stream_parts = meshes.tensor.size() if strategy.sequence_parallel else 1
    blocks = bare.layers
    recompute(blocks, strategy.activation_checkpointing, bare.depth)
    compile_blocks(blocks, strategy.compile, strategy.kept_share)
    if meshes.data.size() == 1 and meshes.tensor is None and not (strategy.is_mixed or strategy.offload):
        # Wrappers would slow every forward for nothing. (Split tensors need them: they sum gradients of norms.)
        return model.to_empty(device=device)
    if not meshes.is_sharded:
        return replicate(model.to_empty(device=device), meshes.data, strategy, will_train=will_train)
    _shard(model, blocks, meshes, device, strategy)
    return model.to_empty(device=torch.device("cpu") if strategy.offload else device)


def initialise(model: nn.Module, seed: int) -> None:
    """Initialize this rank's shard of every parameter and buffer.

    Each tensor has its own generator, keyed by seed and canonical name. Draws whole tensors, one at a time, so that the
    values do not depend on the layout.
    """
    bare = cast(Model, model.module if isinstance(model, DistributedDataParallel) else model)
    for name, tensor in (*parameters_of(model), *buffers_of(model)):
        key = hashlib.sha256(f"{seed}:{name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(key[:8], "little"))
        fill(tensor, bare.initial(name, tensor.shape, generator).to(tensor.dtype))


@contextmanager
def gradients(model: nn.Module, *, summed: bool) -> Generator[None]:
    """Wrap forward and backward of a micro-batch.

    Gradients are summed over ranks only if `summed` is true: in the last micro-batch of a step.
    """
    if isinstance(model, DistributedDataParallel) and not summed:
        with model.no_sync():
            yield
        return
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(summed)
        model.set_is_last_backward(summed)
    yield


def _shard(model: nn.Module, blocks: nn.ModuleDict, meshes: Meshes, device: torch.device, strategy: Strategy) -> None:
    options: dict[str, Any] = {"mesh": meshes.data, "mp_policy": fsdp_policy(strategy.precision, strategy.reduce)}
    if strategy.offload:
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=device.type == "cuda")
    # A pipeline would gather parameters again for every micro-batch.
    reshard = strategy.resharding if meshes.pipeline is None else False
    for block in blocks.values():
        fully_shard(block, reshard_after_forward=reshard, **options)
    fully_shard(model, **options)
    if strategy.prefetch > 1:  # 1 is torch's default
        _prefetch([cast(FSDPModule, block) for block in blocks.values()], strategy.prefetch)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # The loss is already divided by the tokens of the whole step: gradients are summed, never averaged.
            module.set_gradient_divide_factor(1.0)
            # gloo does not support PREMUL_SUM, which a divide factor needs.
            module.set_force_sum_reduction_for_comms(True)


def _prefetch(blocks: list[FSDPModule], count: int) -> None:
    for number, block in enumerate(blocks):
        block.set_modules_to_forward_prefetch(blocks[number + 1 : number + 1 + count])
        block.set_modules_to_backward_prefetch(blocks[max(0, number - count) : number][::-1])
