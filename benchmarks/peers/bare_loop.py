"""A hand-written FSDP2 loop, nothing around it: the same model, mathematics and data order as the built-in trainer.

usage: RANK=… WORLD_SIZE=… MASTER_ADDR=… MASTER_PORT=… python -m benchmarks.peers.bare_loop WORKLOAD.json GATE ARM

The loss is a mean over the valid tokens of the whole step, so a step needs one small all-reduce; nothing else is
exchanged but gradients, parameters and the gradient norm. It stands behind the benchmark's gate and prints nothing.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.functional import cross_entropy

from benchmarks.gate import GateClient
from benchmarks.peers.workload import Text, Workload
from regroup.workers.models.transformer import build


def main() -> None:
    """Train until the gate closes for good."""
    workload = Workload(**json.loads(Path(sys.argv[1]).read_text()))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(workload.seed)
    model = build(workload.model)
    for module in [*model.layers.values(), model]:
        fully_shard(module)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=workload.lr, betas=workload.betas, eps=workload.eps, weight_decay=workload.weight_decay
    )
    text = Text(workload)
    share = workload.global_batch // workload.micro_batch // world

    gate = GateClient(sys.argv[2], sys.argv[3], int(os.environ["RANK"]))
    go_on, step = gate.wait(), 0
    while go_on:
        step += 1
        batches = [text.micro_batch(step, rank * share + index) for index in range(share)]
        tokens = sum(batch[:, 1:].numel() for batch in batches) * world
        total = torch.zeros((), dtype=torch.float64)
        for batch in batches:
            logits = model(batch[:, :-1])
            loss = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="sum") / tokens
            loss.backward()
            total += loss.detach()
        dist.all_reduce(total)
        torch.nn.utils.clip_grad_norm_(model.parameters(), workload.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        go_on = gate.step_done()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
