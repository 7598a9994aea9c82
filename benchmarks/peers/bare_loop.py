"""A hand-written FSDP2 loop, nothing around it: the same model, mathematics and data order as the built-in trainer.

usage: RANK=… WORLD_SIZE=… MASTER_ADDR=… MASTER_PORT=… python -m benchmarks.peers.bare_loop SETTINGS.json

It takes initial values, token file and order of samples from the trainer, so that both can be held against each other
loss by loss; the loop itself is its own. The loss is a mean over the valid tokens of the whole step, so a step needs
one small all-reduce; nothing else is exchanged but gradients, parameters and the gradient norm.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.functional import cross_entropy

from benchmarks.gate import GateClient
from benchmarks.peers.workload import Workload
from regroup.workers.models.transformer import build
from regroup.workers.parallel.parallelize import initialise
from regroup.workers.state.data import permute
from regroup.workers.state.token_file import TokenFile


@dataclass(frozen=True)
class BareSettings:
    """What the benchmark hands to the loop."""

    workload: dict[str, Any]
    tokens: str
    """The prepared token file."""
    gate: str
    """The gate's socket."""
    arm: str
    losses: str
    """File to which rank 0 writes the loss of every step when the gate closes for good."""


def main() -> None:
    """Train until the gate closes for good."""
    settings = BareSettings(**json.loads(Path(sys.argv[1]).read_text()))
    workload = Workload(**settings.workload)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    model = build(workload.model)
    for module in [*model.layers.values(), model]:
        fully_shard(module)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    initialise(model, workload.seed)
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    norms = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": workload.weight_decay}, {"params": norms, "weight_decay": 0.0}],
        lr=workload.lr, betas=workload.betas, eps=workload.eps, fused=True,
    )  # fmt: skip

    text = TokenFile(Path(settings.tokens))
    count = text.records(workload.sequence)
    order = permute(np.arange(count, dtype=np.uint64), count, workload.seed, 0).tolist()
    share = workload.global_batch // workload.micro_batch // world
    losses: list[float] = []

    gate = GateClient(settings.gate, settings.arm, int(os.environ["RANK"]))
    go_on = gate.wait()
    while go_on:
        optimizer.zero_grad()
        sums = torch.zeros(2, dtype=torch.float64)
        for turn in range(share):
            slot = len(losses) * workload.global_batch + (turn * world + rank) * workload.micro_batch
            rows = [order[(slot + row) % count] for row in range(workload.micro_batch)]
            tokens, labels = text.rows(rows, workload.sequence)
            logits = model(tokens)
            loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
            (loss / (workload.global_batch * workload.sequence)).backward()
            sums += torch.tensor([loss.detach(), labels.numel()])
        dist.all_reduce(sums)
        torch.nn.utils.clip_grad_norm_(model.parameters(), workload.clip_norm)
        optimizer.step()
        losses.append(float(sums[0] / sums[1]))
        go_on = gate.step_done()
    if rank == 0:
        Path(settings.losses).write_text(json.dumps(losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
