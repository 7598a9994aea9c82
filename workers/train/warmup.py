"""A tiny forward pass and update in the zygote, so that its ranks inherit what a first step initializes.

The first sharded step of a process pays for lazy imports and for torch's dispatch caches: some tenths of a second of
CPU time per rank and generation. Done once before the forks, all ranks inherit it. A fake process group keeps the step
within one process. One thread and tiny tensors keep it out of OpenMP, which must not run before a fork.

There is no backward pass: in a build of torch for CUDA, the first one starts a thread for each device and initializes
the driver, and such a process cannot be forked. A first backward pass costs a rank some milliseconds.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule

from regroup.workers.contract.codec import build
from regroup.workers.contract.rank_config import WarmupConfig
from regroup.workers.models import build_model, tiny_of
from regroup.workers.parallel.grad_norm import copies_of, scale, squared_norm
from regroup.workers.parallel.loss import label_loss, loss_scope
from regroup.workers.parallel.mesh import Meshes
from regroup.workers.parallel.parallelize import gradients, initialise, parallelize
from regroup.workers.parallel.precision import autocast
from regroup.workers.parallel.sharded_optimizers import make_optimizer
from regroup.workers.parallel.strategy import strategy_of
from regroup.workers.parallel.zero1 import RowPartition
from regroup.workers.state.training_state import TrainingState
from regroup.workers.torch_internals.devices import no_device_queries
from regroup.workers.torch_internals.groups import fake_groups

_WORLD_SIZE = 2
_AXIS = "warm_up"
"""Mesh axis name that no real mesh has.

torch caches some values by mesh, including a rank's coordinates. No rank must ever find the values cached here.
"""


def warm_up(args: Mapping[str, Any]) -> None:
    """Build, shard and update a tiny model of the job's family, and plan its snapshot, as its ranks will.

    Args:
        args: a `WarmupConfig` as plain data.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with fake_groups(_WORLD_SIZE), no_device_queries():
            _step(build(WarmupConfig, args))
    finally:
        torch.set_num_threads(threads)


def _step(warmup: WarmupConfig) -> None:
    config, device = warmup.config, torch.device("cpu")
    # Ranks could not reuse code compiled for the tiny model.
    strategy, meshes = replace(strategy_of(config), compile="off"), _meshes(warmup)
    tiny = tiny_of(config.model)
    built = build_model({**config.model, **tiny.config}, tiny.symbols)
    model = parallelize(built, meshes, device, strategy, will_train=False)
    rows = RowPartition(meshes.data) if strategy.data_parallel == "zero1" else None
    optimizer = make_optimizer(model, config.training.optimizer, rows)
    initialise(model, 0)
    with gradients(model, summed=True), loss_scope(meshes), autocast(strategy.precision, meshes, device.type):
        label_loss(model(tiny.inputs), tiny.labels)
    _reshard(model)
    trained = list(model.parameters())
    for parameter in trained:
        parameter.grad = torch.zeros_like(parameter)
    zeros = [parameter.grad for parameter in trained if parameter.grad is not None]
    squared_norm(zeros, copies_of(trained))
    scale(zeros, 0.5)
    optimizer.step()
    optimizer.zero_grad()
    TrainingState({"model": model, "optimizer": optimizer}, device).buffer_bytes()


def _reshard(model: nn.Module) -> None:
    """Free the whole parameters that the forward pass of the outermost module keeps for its backward pass."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def _meshes(warmup: WarmupConfig) -> Meshes:
    """Return the meshes of the strategy, with other axis names. Pipeline stages run as a model of their own."""
    if warmup.is_tensor_parallel:
        mesh = init_device_mesh("cpu", (1, _WORLD_SIZE), mesh_dim_names=(_AXIS, f"{_AXIS}_tensor"))
        return Meshes(mesh[_AXIS], mesh[f"{_AXIS}_tensor"])
    mesh = init_device_mesh("cpu", (_WORLD_SIZE,), mesh_dim_names=(_AXIS,))
    return Meshes(mesh, is_sharded=strategy_of(warmup.config).is_sharded)
