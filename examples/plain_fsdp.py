"""The training loop of function_fsdp.py without regroup: the run ends if one of its processes dies.

torchrun --nproc-per-node 4 examples/plain_fsdp.py
"""

import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def spirals(records: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points on three arms of a spiral, and the arm of each; the same on every rank."""
    generator = torch.Generator().manual_seed(0)
    arm = torch.randint(3, (records,), generator=generator)
    radius = torch.rand(records, generator=generator)
    angle = 4 * radius + arm * 2.1 + 0.1 * torch.randn(records, generator=generator)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), arm


def train() -> None:
    """Learn to predict the arm of a point."""
    torch.manual_seed(0)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    points, arms = spirals(1000)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95))
    for module in (model, average):
        fully_shard(module)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = CosineAnnealingLR(optimizer, 100)
    for step in range(100):
        total = 0.0
        order = torch.randperm(len(points), generator=torch.Generator().manual_seed(step))[:64]
        for indices in order.split(8)[rank::ranks]:
            losses = cross_entropy(model(points[indices]), arms[indices], reduction="none")
            loss = losses.sum() * ranks / 64
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        average.update_parameters(model)
        if rank == 0:
            print(f"step {step + 1} loss {total:.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
    gc.collect()  # FSDP's groups are in reference cycles, and torch 2.13 may abort if they are freed at exit
    dist.destroy_process_group()
