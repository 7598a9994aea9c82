"""A careful user's torchft script: one data-parallel replica, which heals from the others, and a rehearsed SIGKILL.

usage: python -m benchmarks.peers.torchft_loop SETTINGS.json REPLICA

Times (Unix seconds) go to `events`, one JSON line each, appended by the process they happen in: `start` of a replica,
its `step` with how many replicas took part, and `kill` in the one that kills itself.
"""

import json
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.peers.noted import Killing, note
from benchmarks.peers.workload import Text, Workload


@dataclass(frozen=True)
class TorchftSettings:
    """What the benchmark hands to the script."""

    lighthouse: str
    """Address of the process that forms quorums."""
    events: str
    """File to which times are appended."""
    workload: dict[str, Any]
    replicas: int
    kill_rank: int
    kill_step: int
    kill_phase: str
    """`forward`, `backward` or `optimizer`."""


def main() -> None:
    """Train until all steps are committed; the state of a replica that comes anew is that of the others."""
    import torch
    import torch.distributed as dist
    from torch.nn.functional import cross_entropy
    from torchft import Manager, Optimizer, ProcessGroupGloo
    from torchft.ddp import PureDistributedDataParallel

    from regroup.workers.models.transformer import build

    settings, replica = TorchftSettings(**json.loads(Path(sys.argv[1]).read_text())), int(sys.argv[2])
    workload = Workload(**settings.workload)
    torch.set_num_threads(1)
    torch.manual_seed(workload.seed)
    module = build(workload.model, workload.model["vocab_size"])
    inner = torch.optim.AdamW(
        module.parameters(), lr=workload.lr, betas=workload.betas, eps=workload.eps, weight_decay=workload.weight_decay
    )

    def load(state: dict[str, Any]) -> None:
        module.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
        load_state_dict=load,
        state_dict=lambda: {"model": module.state_dict(), "optimizer": inner.state_dict()},
        min_replica_size=1,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=settings.lighthouse,
        replica_id=f"replica-{replica}",
        hostname="127.0.0.1",
    )
    # Their other wrapper ends the survivors with an assertion when a peer dies within a bucket's sum.
    model = PureDistributedDataParallel(manager, module)
    optimizer = Optimizer(manager, inner)
    text = Text(workload)
    note(settings.events, "start", replica=replica)

    killing = Killing(settings.events, settings.kill_rank, settings.kill_step, settings.kill_phase)
    share = workload.global_batch // workload.micro_batch // settings.replicas
    while (done := manager.current_step()) < workload.steps:
        step = done + 1
        optimizer.zero_grad()  # begins a quorum
        killing.strike(replica, step, "forward")
        for index in range(share):
            tokens = text.micro_batch(step, replica * share + index)
            logits = model(tokens[:, :-1])
            loss = cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")
            killing.strike(replica, step, "backward")
            # torchft averages over the replicas that take part
            (loss * settings.replicas / (workload.global_batch * workload.sequence)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), workload.clip_norm)
        killing.strike(replica, step, "optimizer")
        optimizer.step()
        if manager.current_step() > done:
            note(settings.events, "step", step=manager.current_step(), replica=replica, of=manager.num_participants())
    manager.shutdown(wait=False)


if __name__ == "__main__":
    main()
