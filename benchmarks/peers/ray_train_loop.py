"""A careful user's Ray Train script: FSDP2, DCP checkpoints on local disk, resume, and an injected SIGKILL.

Usage: python -m benchmarks.peers.ray_train_loop SETTINGS.json

Each process appends its events with their times (Unix seconds) to the file `events`, one JSON line each. The driver
appends `submit` just before `fit()`. Rank 0 appends `step` after each optimizer step. The rank that kills itself
appends `kill`.
"""

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.event_file import Killing, note
from benchmarks.peers.workload import Workload

EXPERIMENT = "recovery"


@dataclass(frozen=True)
class RayTrainSettings:
    """Settings that the benchmark passes to the script."""

    address: str
    events: str
    """File to which events are appended."""
    storage: str
    """Folder for Ray Train's results and checkpoints."""
    workload: dict[str, Any]
    ranks: int
    checkpoint_every: int
    """Steps between checkpoints."""
    direct: bool
    """Write checkpoints directly to `storage`. Otherwise Ray Train copies them there."""
    kill_rank: int
    kill_step: int
    kill_phase: str
    """`forward`, `backward` or `optimizer`."""
    max_failures: int = 3
    most_ranks: int = 0
    """Maximum of an elastic group, whose minimum is `ranks`. With 0, the group always has `ranks` ranks."""
    resize_every_s: float = 60.0
    """Interval at which an elastic group checks for free capacity. The value is Ray Train's default."""


def train(config: dict[str, Any]) -> None:
    """Train. Ray Train calls this function once per worker and start of the worker group."""
    import ray.train
    from ray.train import Checkpoint, CheckpointUploadMode

    from benchmarks.peers.sharded_loop import ShardedLoop

    settings = RayTrainSettings(**config)
    killing = Killing(settings.events, settings.kill_rank, settings.kill_step, settings.kill_phase)
    loop = ShardedLoop(Workload(**settings.workload), killing)
    done = 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            done = loop.load(folder)
    if loop.rank == 0:
        note(settings.events, "start", step=done)
    for step in range(done + 1, loop.workload.steps + 1):
        metrics = {"step": step, "loss": loop.train_step(step)}
        if loop.rank == 0:
            note(settings.events, "step", ranks=loop.ranks, **metrics)
        # `report` waits for the controller's next poll. A report for each step would slow short steps down.
        if step % settings.checkpoint_every:
            continue
        if settings.direct:
            folder = str(Path(settings.storage) / EXPERIMENT / f"step-{step}")
            loop.save(folder, step)
            ray.train.report(metrics, Checkpoint(folder), checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)
        else:
            with tempfile.TemporaryDirectory() as folder:
                loop.save(folder, step)
                ray.train.report(metrics, Checkpoint.from_directory(folder))


def main() -> None:
    """Connect, then submit. Record `submit` when only `fit()` remains."""
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
