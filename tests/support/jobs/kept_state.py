"""A training function that tracks every unusual kind of state at once, and whose ranks differ."""

import hashlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

STEP_THAT_UNFREEZES = 3


class ExtraState(nn.Linear):
    """A layer with a counter in its extra state, and a buffer that it replaces and that grows."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__(8, 8)
        self.calls = 0
        self.register_buffer("seen", torch.zeros(1))

    def get_extra_state(self) -> Any:
        return {"calls": self.calls}

    def set_extra_state(self, state: Any) -> None:
        self.calls = state["calls"]

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen = torch.cat([self.seen, x.detach().mean()[None]])
        return super().forward(x) * (1 + 0.01 * self.calls) + self.seen.sum()


class Graph(nn.Module):
    """A layer with a sparse buffer."""

    adjacency: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("adjacency", torch.eye(4).to_sparse())

    def forward(self, x: Tensor) -> Tensor:
        self.adjacency = (self.adjacency.to_dense() * 1.01).to_sparse()
        return torch.sparse.mm(self.adjacency, self.linear(x))


class WarmUp(torch.optim.SGD):
    """An optimizer with state under a key of its own."""

    def step(self, closure: Any = None) -> Any:
        own = self.state["global"]
        own["n"] = own.get("n", 0) + 1
        for group in self.param_groups:
            group["lr"] = 0.01 / own["n"]
        return super().step(closure)


def train(run: Any) -> None:
    """Train four models: synchronized, with statistics of each rank, with LBFGS, and on each rank alone."""
    synchronized = DistributedDataParallel(
        nn.Sequential(ExtraState(), Graph()), broadcast_buffers=False, init_sync=False
    )
    normalized = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)), broadcast_buffers=False)
    quadratic = DistributedDataParallel(nn.Linear(8, 8))
    alone = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    alone[0].requires_grad_(False)
    models = {"model": synchronized, "normalized": normalized, "quadratic": quadratic, "alone": alone}
    optimizers = {
        "warm_up": WarmUp(synchronized.parameters(), lr=0.01),
        "adamw": torch.optim.AdamW(normalized.parameters(), lr=0.01),
        "lbfgs": torch.optim.LBFGS(quadratic.parameters(), lr=0.1, max_iter=2),
        "local": torch.optim.AdamW(alone[1].parameters(), lr=0.01),
    }
    run.track(**models, **optimizers)
    for step in run.steps():
        if step == STEP_THAT_UNFREEZES:
            alone[0].requires_grad_(True)
            optimizers["local"].add_param_group({"params": alone[0].parameters(), "lr": 0.001})
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(1000 * step + run.rank))

        def loss_of(model: nn.Module, x: Tensor = x) -> Tensor:
            for optimizer in optimizers.values():
                optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        losses = [loss_of(synchronized)]
        optimizers["warm_up"].step()
        losses.append(loss_of(normalized))
        optimizers["adamw"].step()
        losses.append(loss_of(alone))
        optimizers["local"].step()
        losses.append(optimizers["lbfgs"].step(lambda: loss_of(quadratic)))
        run.report(loss=float(sum(losses)))
    for name, model in models.items():
        print(name, digest(model), flush=True)
    print("groups", len(optimizers["local"].param_groups), flush=True)


def digest(model: nn.Module) -> str:
    """Return a hash of the whole state of a model."""
    found = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        content = value.to_dense().double().numpy().tobytes() if isinstance(value, Tensor) else repr(value).encode()
        found.update(name.encode() + content)
    return found.hexdigest()[:16]


def forget(run: Any) -> None:
    """Train with a schedule that is not tracked."""
    model = DistributedDataParallel(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run.track(model=model, optimizer=optimizer)
    rates = iter(range(1, 100))
    for step in run.steps():
        optimizer.param_groups[0]["lr"] = 0.01 / next(rates)
        optimizer.zero_grad()
        model(torch.randn(4, 8, generator=torch.Generator().manual_seed(step))).square().mean().backward()
        optimizer.step()
