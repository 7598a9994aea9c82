"""A careful user's torchft script: one data-parallel replica that recovers from the others, and an injected SIGKILL.

Usage: python -m benchmarks.peers.torchft_loop SETTINGS.json REPLICA

Each process appends its events with their times (Unix seconds) to the file `events`, one JSON line each. A replica
appends `start`, and `step` with the number of replicas that took part. The replica that kills itself appends `kill`.
"""

import json
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.peers.event_file import Killing, note
from benchmarks.peers.workload import Text, Workload


@dataclass(frozen=True)
class TorchftSettings:
    """Settings that the benchmark passes to the script."""

    lighthouse: str
    """Address of the process that forms quorums."""
    events: str
    """File to which events are appended."""
    workload: dict[str, Any]
    replicas: int
    kill_rank: int
    kill_step: int
    kill_phase: str
    """`forward`, `backward` or `optimizer`."""


def main() -> None:
    """Train until all steps are committed. A restarted replica receives its state from the others."""
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
    # torchft's other wrapper ends the survivors with an assertion if a peer dies during the all-reduce of a bucket.
    model = PureDistributedDataParallel(manager, module)
    optimizer = Optimizer(manager, inner)
    text = Text(workload)
    note(settings.events, "start", replica=replica)

    killing = Killing(settings.events, settings.kill_rank, settings.kill_step, settings.kill_phase)
    share = workload.global_batch // workload.micro_batch // settings.replicas
    while (done := manager.current_step()) < workload.steps:
        step = done + 1
        optimizer.zero_grad()  # starts a quorum
        killing.kill_if_due(replica, step, "forward")
        for index in range(share):
            tokens = text.micro_batch(step, replica * share + index)
            logits = model(tokens[:, :-1])
            loss = cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")
            killing.kill_if_due(replica, step, "backward")
            # torchft averages over the replicas that take part
            (loss * settings.replicas / (workload.global_batch * workload.sequence)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), workload.clip_norm)
        killing.kill_if_due(replica, step, "optimizer")
        optimizer.step()
        if manager.current_step() > done:
            note(settings.events, "step", step=manager.current_step(), replica=replica, of=manager.num_participants())
    manager.shutdown(wait=False)


if __name__ == "__main__":
    main()
