"""Checkpoints of torch itself: the blocked time of `async_save`, and the time of `load`, of an FSDP2 model with AdamW.

Usage:

    RANK=… WORLD_SIZE=… MASTER_ADDR=… MASTER_PORT=… python -m benchmarks.peers.checkpoint_loop SETTINGS.json

The model is the trainer's. `save` runs in the process that trains, as a careful user would write it: gloo for the
collectives of the save, and a wait for the previous save before the next. `load` is a new process that builds the model
and loads into it.
"""

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from regroup.workers.models.transformer import build
from regroup.workers.parallel.parallelize import initialise

_SYMBOLS = 257


@dataclass(frozen=True)
class CheckpointSettings:
    """Settings that the benchmark passes to the loop."""

    model: dict[str, Any]
    folder: str
    """Folder of the checkpoints."""
    mode: str
    """`save` or `load`."""
    saves: int
    result: str
    """File to which rank 0 writes the seconds, the largest of all ranks."""


def main() -> int:
    """Save or load."""
    settings = CheckpointSettings(**json.loads(Path(sys.argv[1]).read_text()))
    dist.init_process_group("gloo")
    dist.barrier()
    seconds = _save(settings) if settings.mode == "save" else _load(settings)
    slowest = torch.tensor(seconds)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        Path(settings.result).write_text(json.dumps(slowest.tolist()))
    dist.barrier()
    dist.destroy_process_group()
    return 0


def _save(settings: CheckpointSettings) -> list[float]:
    """Save some checkpoints after a step each. Return the seconds for which training was blocked by each."""
    model, optimizer = _built(settings)
    initialise(model, 0)
    blocked: list[float] = []
    for number in range(settings.saves):
        _step(model, optimizer)
        dist.barrier()
        begun_s = time.perf_counter()
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments}
        saving: Any = dcp.async_save(state, checkpoint_id=f"{settings.folder}/{number}")
        blocked.append(time.perf_counter() - begun_s)
        saving.result()
    return blocked


def _load(settings: CheckpointSettings) -> list[float]:
    """Build the model without first values and load the last checkpoint. Return the seconds of both."""
    begun_s = time.perf_counter()
    model, optimizer = _built(settings)
    weights, moments = get_state_dict(model, optimizer)
    state: dict[str, Any] = {"model": weights, "optimizer": moments}
    dcp.load(state, checkpoint_id=f"{settings.folder}/{settings.saves - 1}")
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return [time.perf_counter() - begun_s]


def _built(settings: CheckpointSettings) -> tuple[nn.Module, torch.optim.Optimizer]:
    with torch.device("meta"):
        model = build(settings.model, _SYMBOLS)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers.values():
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)


def _step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    tokens = torch.randint(0, _SYMBOLS, (1, 33))
    model(tokens[:, :-1]).float().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
