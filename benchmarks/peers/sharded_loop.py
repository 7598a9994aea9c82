"""A careful user's training loop with FSDP2 and DCP checkpoints, for both Ray Train and torchrun."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

from benchmarks.peers.event_file import Killing
from benchmarks.peers.workload import Text, Workload
from regroup.workers.models.transformer import build


class ShardedLoop:
    """One rank's model, optimizer and text. The process group must exist before the loop is created."""

    def __init__(self, workload: Workload, killing: Killing) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(workload.seed)
        self.workload, self.killing = workload, killing
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.model: Any = build(workload.model, workload.model["vocab_size"])
        for layer in self.model.layers.values():
            fully_shard(layer)
        fully_shard(self.model)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=workload.lr, betas=workload.betas, eps=workload.eps,
            weight_decay=workload.weight_decay,
        )  # fmt: skip
        self._text = Text(workload)

    def train_step(self, step: int) -> float:
        """Run one step and return the loss of the whole batch. Steps count from 1."""
        workload = self.workload
        share = workload.global_batch // workload.micro_batch // self.ranks
        loss_sum = torch.zeros(2, dtype=torch.float64)
        self.killing.kill_if_due(self.rank, step, "forward")
        for index in range(share):
            tokens = self._text.micro_batch(step, self.rank * share + index)
            logits = self.model(tokens[:, :-1])
            loss = cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")
            self.killing.kill_if_due(self.rank, step, "backward")
            # fully_shard averages over ranks
            (loss * self.ranks / (workload.global_batch * workload.sequence)).backward()
            loss_sum += torch.tensor([loss.item(), tokens[:, 1:].numel()], dtype=torch.float64)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), workload.clip_norm)
        self.killing.kill_if_due(self.rank, step, "optimizer")
        self.optimizer.step()
        self.optimizer.zero_grad()
        dist.all_reduce(loss_sum)
        return float(loss_sum[0] / loss_sum[1])

    def save(self, folder: str | Path, step: int) -> None:
        """Write a checkpoint for `load`. Every rank writes its part."""
        dcp.save(self._state(step), checkpoint_id=folder)

    def load(self, folder: str | Path) -> int:
        """Load a checkpoint and return its step."""
        state = self._state(0)
        dcp.load(state, checkpoint_id=folder)
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        return int(state["step"])

    def _state(self, step: int) -> dict[str, Any]:
        weights, moments = get_state_dict(self.model, self.optimizer)
        return {"model": weights, "optimizer": moments, "step": step}
