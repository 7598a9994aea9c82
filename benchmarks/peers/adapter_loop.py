"""A training function that tunes low-rank adapters of frozen layers, so that most of its state never changes.

The file is sent alone, like a user's file: `workload.function` is `adapter_loop:train`.
"""

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

import regroup

_RECORDS = 1000


class AdaptedLayer(nn.Module):
    """A frozen square layer with a trainable product of two narrow ones."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(width, width, bias=False).requires_grad_(False)
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input with the change of this layer."""
        return x + torch.tanh(self.frozen(x) + self.up(self.down(x)))


def train(run: regroup.Context) -> None:
    """Learn random targets."""
    width, layers, rank = run.args["width"], run.args["layers"], run.args["rank"]
    torch.manual_seed(0)
    inputs, targets = torch.randn(_RECORDS, width), torch.randn(_RECORDS, width)
    model = nn.Sequential(*(AdaptedLayer(width, rank) for _ in range(layers)))
    for module in [*model, model]:
        fully_shard(module, mesh=run.mesh)
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-4)
    run.track(model=model, optimizer=optimizer)
    for _ in run.steps():
        for batch in run.micro_batches(_RECORDS):
            losses = (model(inputs[batch.indices]) - targets[batch.indices]).square().mean(1)
            (losses * batch.weights).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        run.report()
