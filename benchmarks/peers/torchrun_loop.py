"""A careful user's torchrun script: FSDP2, DCP checkpoints on local disk, resume, and an injected SIGKILL.

Usage: torchrun … -m benchmarks.peers.torchrun_loop SETTINGS.json

Rank 0 appends `start` and each `step` to the file `events`. The rank that kills itself appends `kill`.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.event_file import Killing, note
from benchmarks.peers.workload import Workload


@dataclass(frozen=True)
class TorchrunSettings:
    """Settings that the benchmark passes to the script."""

    events: str
    """File to which events are appended."""
    storage: str
    """Folder for checkpoints."""
    workload: dict[str, Any]
    checkpoint_every: int
    """Steps between checkpoints."""
    kill_rank: int
    kill_step: int
    kill_phase: str


def main() -> None:
    """Train, starting from the newest checkpoint."""
    import torch.distributed as dist

    from benchmarks.peers.sharded_loop import ShardedLoop

    settings = TorchrunSettings(**json.loads(Path(sys.argv[1]).read_text()))
    dist.init_process_group("gloo")
    killing = Killing(settings.events, settings.kill_rank, settings.kill_step, settings.kill_phase)
    loop = ShardedLoop(Workload(**settings.workload), killing)
    newest = Path(settings.storage) / "newest"
    done = loop.load(newest.read_text()) if newest.exists() else 0
    if loop.rank == 0:
        note(settings.events, "start", step=done)
    for step in range(done + 1, loop.workload.steps + 1):
        loss = loop.train_step(step)
        if loop.rank == 0:
            note(settings.events, "step", step=step, loss=loss)
        if step % settings.checkpoint_every == 0:
            folder = f"{settings.storage}/step-{step}"
            loop.save(folder, step)
            if loop.rank == 0:  # `save` returns after all ranks have written
                (unfinished := newest.with_suffix(".unfinished")).write_text(folder)
                unfinished.replace(newest)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
