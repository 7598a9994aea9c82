"""A custom training function: FSDP, a schedule, averaged weights. All uses of regroup go through `run`.

regroup run examples/function-fsdp.yaml
"""

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import regroup


def spirals(records: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points on three arms of a spiral, and the arm of each; the same on every rank."""
    generator = torch.Generator().manual_seed(0)
    arm = torch.randint(3, (records,), generator=generator)
    radius = torch.rand(records, generator=generator)
    angle = 4 * radius + arm * 2.1 + 0.1 * torch.randn(records, generator=generator)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), arm


def train(run: regroup.Context) -> None:
    """Learn to predict the arm of a point."""
    points, arms = spirals(1000)
    points, arms = points.to(run.device), arms.to(run.device)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)).to(run.device)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95))
    for module in (model, average):
        fully_shard(module, mesh=run.mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=run.args.get("lr", 0.01))
    schedule = CosineAnnealingLR(optimizer, run.last_step)
    run.track(model=model, average=average, optimizer=optimizer, schedule=schedule)
    for _ in run.steps():
        total = 0.0
        for batch in run.micro_batches(len(points)):
            losses = cross_entropy(model(points[batch.indices]), arms[batch.indices], reduction="none")
            loss = (losses * batch.weights).sum()
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        average.update_parameters(model)
        run.report(loss=total)
