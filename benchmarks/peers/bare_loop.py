"""Hand-written torch loops for the layouts of the built-in trainer, as a careful user would write them.

Usage:

    RANK=… WORLD_SIZE=… MASTER_ADDR=… MASTER_PORT=… python -m benchmarks.peers.bare_loop SETTINGS.json

The model, initial values, token file and order of samples are the trainer's. The losses of both can therefore be
compared step by step. The parallelization and the loop use torch's own components.
"""

import json
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from benchmarks.gates.gate import GateClient
from benchmarks.peers.workload import Workload
from regroup.workers.data.sampler import permute
from regroup.workers.data.token_file import TokenFile
from regroup.workers.models.transformer import Transformer, build
from regroup.workers.parallel.parallelize import initialise


@dataclass(frozen=True)
class BareSettings:
    """Settings that the benchmark passes to the loop."""

    workload: dict[str, Any]
    model: dict[str, Any]
    layout: dict[str, int]
    """Degree of each axis whose degree is greater than one."""
    data_parallel: str
    tokens: str
    """Path of the prepared token file."""
    gate: str
    """Path of the gate's socket."""
    arm: str
    losses: str
    """File to which rank 0 writes the loss of every step when the gate closes permanently."""


class Loop:
    """One rank's model, data and optimizer."""

    def __init__(self, settings: BareSettings) -> None:
        self.workload = Workload(**settings.workload)
        layout, self.rank = settings.layout, dist.get_rank()
        axes = [axis for axis in ("pp", "dp_replicate", "dp_shard", "tp") if layout.get(axis, 1) > 1]
        self.mesh = init_device_mesh("cpu", tuple(layout[axis] for axis in axes), mesh_dim_names=tuple(axes))
        self.tp, self.pp = (self.mesh[axis] if axis in axes else None for axis in ("tp", "pp"))
        data = [axis for axis in axes if axis.startswith("dp")]
        self.data: DeviceMesh | None = self.mesh[tuple(data)] if data else None
        self.shards = settings.data_parallel == "fsdp"
        self.degree = self.data.size() if self.data else 1
        self.place = self.rank // (self.tp.size() if self.tp else 1) % self.degree
        text = TokenFile(Path(settings.tokens))
        count = text.records(self.workload.sequence)
        order = permute(np.arange(count, dtype=np.uint64), count, self.workload.seed, 0).tolist()
        self.rows: Callable[[list[int]], Any] = lambda numbers: text.rows(
            [order[number % count] for number in numbers], self.workload.sequence
        )
        self.share = self.workload.global_batch // self.workload.micro_batch // self.degree
        self.scale = 1 / (self.workload.global_batch * self.workload.sequence)
        self.model: nn.Module = self._spread(build(settings.model, settings.model["vocab_size"]))
        self.optimizer = self._optimizer(settings.data_parallel)
        if self.pp is not None:
            stage = PipelineStage(
                self.model, self.pp.get_local_rank(), self.pp.size(), torch.device("cpu"), group=self.pp.get_group()
            )
            self.schedule = Schedule1F1B(stage, self.share, loss_fn=self._loss, scale_grads=False)

    def _spread(self, model: Transformer) -> nn.Module:
        initialise(model, self.workload.seed)
        if self.pp is not None:
            stage, per = self.pp.get_local_rank(), len(model.layers) // self.pp.size()
            for number in range(len(model.layers)):
                if number // per != stage:
                    del model.layers[str(number)]
            if stage > 0:
                model.embed = None
            if stage < self.pp.size() - 1:
                model.norm = model.head = None
        if self.tp is not None:
            _split(model, self.tp)
        if self.shards and self.data is not None:
            for block in model.layers.values():
                fully_shard(block, mesh=self.data, reshard_after_forward=self.pp is None)
            fully_shard(model, mesh=self.data)
            for module in model.modules():
                if isinstance(module, FSDPModule):
                    module.set_gradient_divide_factor(1.0)
                    module.set_force_sum_reduction_for_comms(True)
        elif self.data is not None:
            return DistributedDataParallel(model, process_group=self.data.get_group(), gradient_as_bucket_view=True)
        return model

    def _optimizer(self, data_parallel: str) -> torch.optim.Optimizer:
        parameters, w = list(self.model.parameters()), self.workload
        groups = [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": w.weight_decay},
            {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
        ]
        options: dict[str, Any] = {"lr": w.lr, "betas": w.betas, "eps": w.eps, "fused": True}
        if data_parallel == "zero1":
            return ZeroRedundancyOptimizer(groups, optimizer_class=torch.optim.AdamW, **options)
        return torch.optim.AdamW(groups, **options)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        return loss * self.scale

    def step(self, number: int) -> float:
        """Run one step and return the loss of the whole batch. Steps count from 0."""
        w, batches = self.workload, []
        for turn in range(self.share):
            first = number * w.global_batch + (turn * self.degree + self.place) * w.micro_batch
            batches.append(self.rows(list(range(first, first + w.micro_batch))))
        self.optimizer.zero_grad()
        with loss_parallel() if self.tp is not None else nullcontext():
            total = self._pipelined(batches) if self.pp is not None else self._direct(batches)
        whole = torch.tensor([total], dtype=torch.float32)  # a stage without a loss contributes 0
        dist.all_reduce(whole)
        self._clip()
        self.optimizer.step()
        return float(whole)

    def _direct(self, batches: list[Any]) -> float:
        total = 0.0
        for turn, (tokens, labels) in enumerate(batches):
            last = turn == len(batches) - 1
            if isinstance(self.model, FSDPModule):
                self.model.set_requires_gradient_sync(last)
            quiet = isinstance(self.model, DistributedDataParallel) and not last
            with self.model.no_sync() if quiet else nullcontext():  # type: ignore[union-attr, operator]
                loss = self._loss(self.model(tokens), labels)
                # DistributedDataParallel averages over its ranks.
                (loss * self.degree if not self.shards else loss).backward()
            total += _number(loss)
        return total if self.tp is None or self.tp.get_local_rank() == 0 else 0.0

    def _pipelined(self, batches: list[Any]) -> float:
        assert self.pp is not None
        tokens, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
        losses: list[Tensor] = []
        stage = self.pp.get_local_rank()
        if stage == self.pp.size() - 1:
            self.schedule.step(target=labels, losses=losses, return_outputs=False)
        elif stage == 0:
            self.schedule.step(tokens)
        else:
            self.schedule.step()
        if self.tp is not None and self.tp.get_local_rank() > 0:
            return 0.0
        return sum(_number(loss) for loss in losses)

    def _clip(self) -> None:
        if self.pp is None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.workload.clip_norm)
            return
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        squared = (norm.full_tensor() if isinstance(norm, DTensor) else norm) ** 2
        dist.all_reduce(squared, group=self.pp.get_group())
        torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), self.workload.clip_norm, squared**0.5)


def _number(loss: Tensor) -> float:
    loss = loss.detach()
    return float(loss.to_local() if isinstance(loss, DTensor) else loss)


def _split(model: Transformer, mesh: DeviceMesh) -> None:
    stream: dict[str, Any] = {}
    if model.embed is not None:
        stream["embed"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
    if model.head is not None:
        stream["norm"] = SequenceParallel()
        stream["head"] = ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False)
    parallelize_module(model, mesh, stream)
    model.stream_parts = mesh.size()
    for block in model.layers.values():
        parallelize_module(block, mesh, {
            "attention_norm": SequenceParallel(),
            "attention": PrepareModuleInput(input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)),
            "attention.query": ColwiseParallel(),
            "attention.key": ColwiseParallel(),
            "attention.value": ColwiseParallel(),
            "attention.out": RowwiseParallel(output_layouts=Shard(1)),
            "ffn_norm": SequenceParallel(),
            "ffn": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "ffn.gate": ColwiseParallel(),
            "ffn.up": ColwiseParallel(),
            "ffn.down": RowwiseParallel(output_layouts=Shard(1)),
        })  # fmt: skip


def main() -> None:
    """Train until the gate closes permanently."""
    settings = BareSettings(**json.loads(Path(sys.argv[1]).read_text()))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    loop = Loop(settings)
    losses: list[float] = []
    gate = GateClient(settings.gate, settings.arm, int(os.environ["RANK"]))
    go_on = gate.wait()
    while go_on:
        losses.append(loop.step(len(losses)))
        go_on = gate.step_done()
    if dist.get_rank() == 0:
        Path(settings.losses).write_text(json.dumps(losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
