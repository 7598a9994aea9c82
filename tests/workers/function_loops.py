"""Training functions of the kind `function`, as a user would write them, run by the tests of the step loop."""

import time

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F  # noqa: N812
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import regroup

RECORDS = 37


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(RECORDS, 6, generator=generator, dtype=torch.float64)
    return x, (x.sum(1) > 0).long() + (x[:, 0] > 0).long()


def train(run: regroup.Context) -> None:
    x, y = data()
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    wrap = run.args.get("wrap")
    if wrap == "fsdp":
        fully_shard(model, mesh=run.mesh)
    elif wrap == "ddp":
        model = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    schedule = CosineAnnealingLR(optimizer, 6)
    seen = Seen()
    run.track(model=model, optimizer=optimizer, schedule=schedule, seen=seen)
    for step in run.steps(6):
        total = 0.0
        for batch in run.micro_batches(RECORDS):
            loss = (F.cross_entropy(model(x[batch.indices]), y[batch.indices], reduction="none") * batch.weights).sum()
            loss.backward()
            total += float(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        seen.total += torch.rand(2, dtype=torch.float64)
        run.report(loss=total, tokens=3, rank=run.rank, step=step)
    run.result["random"] = seen.total.tolist()
    run.result["rate"] = schedule.get_last_lr()


def of_records(run: regroup.Context) -> None:
    model = DistributedDataParallel(nn.Linear(17, 3).double(), find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    run.track(model=model, optimizer=optimizer)
    for _ in run.steps():
        for batch in run.micro_batches():
            tokens = run.records[batch.indices]["tokens"]
            losses = F.cross_entropy(model(tokens.double() / 256), tokens[:, 0] % 3, reduction="none")
            (losses * batch.weights).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    run.result["length"] = len(run.records)


class Seen:
    """Sums random numbers: restored wrongly, either it or the generator, it ends otherwise."""

    def __init__(self):
        self.total = torch.zeros(2, dtype=torch.float64)

    def state_dict(self):
        return {"total": self.total, "by_name": [self.total.sum()]}

    def load_state_dict(self, state):
        self.total = state["total"]
        assert torch.equal(self.total.sum(), state["by_name"][0])


def averaged(run: regroup.Context) -> None:
    """Train two modules with two optimizers and sharded averaged weights."""
    x, _ = data()
    encoder, decoder = nn.Linear(6, 4).double(), nn.Linear(4, 6).double()
    ema = AveragedModel(encoder, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    for module in (encoder, decoder, ema):
        fully_shard(module, mesh=run.mesh)
    optimizers = [torch.optim.AdamW(encoder.parameters(), lr=0.05), torch.optim.SGD(decoder.parameters(), lr=0.1)]
    run.track(encoder=encoder, decoder=decoder, ema=ema, first=optimizers[0], second=optimizers[1])
    for _ in run.steps():
        for batch in run.micro_batches(RECORDS):
            rows = x[batch.indices]
            loss = ((decoder(encoder(rows)) - rows).pow(2).mean(1) * batch.weights).sum()
            loss.backward()
            run.report(loss=loss.detach())
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        ema.update_parameters(encoder)


def clipped(run: regroup.Context) -> None:
    """Clipping and AdamW of torch, or those that work on the shards."""
    x, y = data()
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    if run.args.get("wrap") == "fsdp":
        fully_shard(model, mesh=run.mesh)
    else:
        model = DistributedDataParallel(model, find_unused_parameters=True)
    on_shards = run.args["on_shards"]
    optimizer = (regroup.ShardAdamW if on_shards else torch.optim.AdamW)(model.parameters(), lr=0.05, weight_decay=0.1)
    run.track(model=model, optimizer=optimizer)
    for _ in run.steps():
        for batch in run.micro_batches(RECORDS):
            loss = (F.cross_entropy(model(x[batch.indices]), y[batch.indices], reduction="none") * batch.weights).sum()
            loss.backward()
            run.report(loss=loss.detach())
        norm = (regroup.clip_grad_norm_ if on_shards else nn.utils.clip_grad_norm_)(model.parameters(), 0.3)
        if isinstance(norm, torch.Tensor):
            norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm  # pyright: ignore[reportAttributeAccessIssue]
        optimizer.step()
        optimizer.zero_grad()
        run.report(grad_norm=norm)


def own_data(run: regroup.Context) -> None:
    model = nn.Linear(2, 1)
    run.track(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    for step in run.steps():
        if run.rank == 0:
            run.report(loss=step, learning_quality=0.5)
        if step == run.args.get("break_at"):
            break


def shares_work(run: regroup.Context) -> None:
    """Train with optimizers that hold state for their own part of the parameters only."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3)).double()
    optimizer = torch.optim.AdamW(model[run.rank].parameters(), lr=0.05)
    run.track(model=model, optimizer=optimizer)
    x, _ = data()
    for _ in run.steps():
        for batch in run.micro_batches(RECORDS):
            model(x[batch.indices]).sum().backward()
        for parameter in model.parameters():
            torch.distributed.all_reduce(parameter.grad)
        optimizer.step()
        for owner, part in enumerate(model):
            for parameter in part.parameters():
                torch.distributed.broadcast(parameter.detach(), owner)
        model.zero_grad()


def until_stopped(run: regroup.Context) -> None:
    run.track(model=nn.Linear(1, 1))
    deadline = time.monotonic() + 30
    for step in run.steps():
        while step == 4 and not run.stopping and time.monotonic() < deadline:
            time.sleep(0.005)


def broken(run: regroup.Context) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    how = run.args["how"]
    if how == "untracked":
        run.track(optimizer=optimizer)
    elif how == "object":
        run.track(model=model, thing=Strange())
    else:
        run.track(model=model)
    if how == "twice":
        run.track(model=model)
    for _ in run.steps(9 if how == "total" else None):
        if how == "late":
            run.track(optimizer=optimizer)
        if how == "nan":
            run.report(loss=float("nan") if run.rank == 1 else 1.0)
        for number, _ in enumerate(run.micro_batches(8 if how == "length" and run.step == 2 else 16)):
            if how == "half" and number:
                break
        if how == "again":
            list(run.micro_batches(16))


class Strange:
    """Cannot be kept."""

    def state_dict(self):
        return {"deep": [{"inside": object()}]}

    def load_state_dict(self, state):
        raise AssertionError


def forgetful(run: regroup.Context) -> None:
    """Keep the schedule in an iterator that is not tracked."""
    x, y = data()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 3)).double())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    run.track(model=model, optimizer=optimizer)
    rates = iter(range(1, 100))
    for _ in run.steps():
        for batch in run.micro_batches(RECORDS):
            losses = F.cross_entropy(model(x[batch.indices]), y[batch.indices], reduction="none")
            (losses * batch.weights).sum().backward()
        optimizer.param_groups[0]["lr"] = 0.05 / next(rates)
        optimizer.step()
        optimizer.zero_grad()


def of_four_steps(run: regroup.Context) -> None:
    model = nn.Linear(1, 1)
    run.track(model=model)
    for _ in run.steps():
        pass
