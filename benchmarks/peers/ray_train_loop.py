"""A careful user's Ray Train script: FSDP2, DCP checkpoints on local disk, resume, and a rehearsed SIGKILL.

usage: python -m benchmarks.peers.ray_train_loop SETTINGS.json

Times (Unix seconds) go to `events`, one JSON line each, appended by the process they happen in: the driver's
`submit` just before `fit()`, rank 0's `step` after each optimizer step, and `kill` in the rank that kills itself.
"""

import json
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.workload import Text, Workload

EXPERIMENT = "recovery"


@dataclass(frozen=True)
class RayTrainSettings:
    """What the benchmark hands to the script."""

    address: str
    events: str
    """File to which times are appended."""
    storage: str
    """Folder for Ray Train's results and checkpoints."""
    workload: dict[str, Any]
    ranks: int
    checkpoint_every: int
    """Steps between checkpoints."""
    direct: bool
    """Write checkpoints straight into `storage` instead of letting Ray Train copy them there."""
    kill_rank: int
    kill_step: int
    kill_phase: str
    """`forward`, `backward` or `optimizer`."""
    max_failures: int = 3
    most_ranks: int = 0
    """Elastic: from `ranks` up to so many; 0: `ranks` all the time."""
    resize_every_s: float = 60.0
    """How often an elastic group looks for room; Ray Train's default."""


def note(path: str, kind: str, **data: Any) -> None:
    """Append one event; a single write of a short line is atomic."""
    line = json.dumps({"kind": kind, "time_s": time.time(), **data}) + "\n"
    with Path(path).open("a") as file:
        file.write(line)


def train(config: dict[str, Any]) -> None:
    """The training function: one call per worker and life of the worker group."""
    import ray.train
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from ray.train import Checkpoint, CheckpointUploadMode
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard
    from torch.nn.functional import cross_entropy

    from regroup.workers.models.transformer import build

    settings = RayTrainSettings(**config)
    workload = Workload(**settings.workload)
    rank = ray.train.get_context().get_world_rank()
    torch.set_num_threads(1)

    torch.manual_seed(workload.seed)
    model = build(workload.model, workload.model["vocab_size"])
    for layer in model.layers.values():
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=workload.lr, betas=workload.betas, eps=workload.eps, weight_decay=workload.weight_decay
    )
    text = Text(workload)

    done = 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            weights, moments = get_state_dict(model, optimizer)
            state = {"model": weights, "optimizer": moments, "step": 0}
            dcp.load(state, checkpoint_id=folder)
            set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
            done = int(state["step"])
    if rank == 0:
        note(settings.events, "start", step=done)

    def strike(step: int, phase: str) -> None:
        marker = Path(settings.events + ".killed")
        if (rank, step, phase) == (settings.kill_rank, settings.kill_step, settings.kill_phase) and not marker.exists():
            marker.touch()
            note(settings.events, "kill", step=step, rank=rank, phase=phase)
            os.kill(os.getpid(), signal.SIGKILL)

    ranks = ray.train.get_context().get_world_size()
    share = workload.global_batch // workload.micro_batch // ranks
    for step in range(done + 1, workload.steps + 1):
        loss_sum = torch.zeros(2, dtype=torch.float64)
        strike(step, "forward")
        for index in range(share):
            tokens = text.micro_batch(step, rank * share + index)
            logits = model(tokens[:, :-1])
            loss = cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")
            strike(step, "backward")
            # fully_shard averages over ranks
            (loss * ranks / (workload.global_batch * workload.sequence)).backward()
            loss_sum += torch.tensor([loss.item(), tokens[:, 1:].numel()], dtype=torch.float64)
        torch.nn.utils.clip_grad_norm_(model.parameters(), workload.clip_norm)
        strike(step, "optimizer")
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(loss_sum)
        metrics = {"step": step, "loss": float(loss_sum[0] / loss_sum[1])}
        if rank == 0:
            note(settings.events, "step", ranks=ranks, **metrics)
        # `report` waits for the controller's next poll, so reporting each step would slow a short step down to it.
        if step % settings.checkpoint_every:
            continue
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments, "step": step}
        if settings.direct:
            folder = Path(settings.storage) / EXPERIMENT / f"step-{step}"
            dcp.save(state, checkpoint_id=folder)
            ray.train.report(metrics, Checkpoint(str(folder)), checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)
        else:
            with tempfile.TemporaryDirectory() as folder:
                dcp.save(state, checkpoint_id=folder)
                ray.train.report(metrics, Checkpoint.from_directory(folder))


def main() -> None:
    """Connect, then submit: `submit` is noted when nothing but `fit()` is left to do."""
    import ray
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    settings = RayTrainSettings(**json.loads(Path(sys.argv[1]).read_text()))
    note(settings.events, "launched")
    ray.init(address=settings.address, log_to_driver=False)
    trainer = TorchTrainer(
        train,
        train_loop_config=vars(settings),
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(
            num_workers=(settings.ranks, settings.most_ranks) if settings.most_ranks else settings.ranks,
            resources_per_worker={"CPU": 1},
            elastic_resize_monitor_interval_s=settings.resize_every_s,
        ),
        run_config=RunConfig(
            name=EXPERIMENT,
            storage_path=settings.storage,
            failure_config=FailureConfig(max_failures=settings.max_failures),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        ),
    )
    note(settings.events, "submit")
    trainer.fit()
    note(settings.events, "finished")


if __name__ == "__main__":
    main()
