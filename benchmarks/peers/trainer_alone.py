"""The built-in trainer without a platform: a rank with a minimal agent, behind the benchmark's gate.

Usage:

    RANK=… WORLD_SIZE=… MASTER_ADDR=… MASTER_PORT=… BENCHMARK_GATE=… python -m benchmarks.peers.trainer_alone FILE

A step includes all costs inside a rank: control all-reduce, fault points, step row, snapshot into shared memory.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.gates import gated_trainer
from regroup.workers.agent.snapshots.buffer_pool import BUFFERS_PER_RANK
from regroup.workers.contract.codec import build
from regroup.workers.contract.messages import Buffers, BuffersRequest, Join, Message, Restore, StepRow
from regroup.workers.contract.progress_page import PAGE_BYTES, ProgressPage
from regroup.workers.contract.rank_config import RankConfig
from regroup.workers.rank.context import Context
from regroup.workers.rank.malloc_tuning import retain_freed_memory
from regroup.workers.train import trainer


@dataclass(frozen=True)
class AloneSettings:
    """Settings that the benchmark passes to a rank."""

    config: dict[str, Any]
    """A `RankConfig` as plain data."""
    layout: dict[str, int]
    dataset: dict[str, Any]
    losses: str
    """File to which rank 0 writes the loss of every step when it ends."""


class _Agent:
    """Minimal agent: receives the rank's messages and provides its buffers."""

    def __init__(self) -> None:
        self.losses: list[float | None] = []

    def send(self, message: Message) -> None:
        if isinstance(message, StepRow):
            self.losses.append(message.loss)

    def request(self, message: Message, fds: Sequence[int] = ()) -> tuple[Message, Sequence[int]]:
        assert isinstance(message, BuffersRequest)
        return Buffers(BUFFERS_PER_RANK, -1), [os.memfd_create(f"buffer-{i}") for i in range(BUFFERS_PER_RANK)]

    def poll(self) -> Message | None:
        return None


def main() -> None:
    """Train to the last step."""
    settings = AloneSettings(**json.loads(Path(sys.argv[1]).read_text()))
    assert gated_trainer.GATE_VARIABLE in os.environ
    torch.set_num_threads(1)
    retain_freed_memory()  # as a rank does
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    join = Join(
        job_id="benchmark",
        generation=1,
        rank=rank,
        world_size=world_size,
        local_rank=rank,
        local_world_size=world_size,
        node_rank=0,
        node_count=1,
        layout=settings.layout,
        device="cpu",
        store_host="",
        store_port=0,
        restore=Restore("none"),
        entry="regroup.workers.train.trainer:train",
        config=build(RankConfig, settings.config),
        dataset=settings.dataset,
    )
    page = os.memfd_create("progress")
    os.ftruncate(page, PAGE_BYTES)
    agent = _Agent()
    trainer.train(Context(join, agent, torch.device("cpu"), ProgressPage(page)))
    if rank == 0:
        Path(settings.losses).write_text(json.dumps(agent.losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
