"""Training functions as a user would write them, run by the tests of the context."""

import hashlib
import struct

import torch
from torch import nn

from regroup.workers.models import build_model, transformer
from regroup.workers.parallel import engine, loss_scale
from regroup.workers.parallel.mesh import meshes_of
from regroup.workers.parallel.parallelize import initialise, parallelize
from regroup.workers.parallel.parameter_digest import digests
from regroup.workers.parallel.parameter_names import parameters_of
from regroup.workers.parallel.strategy import strategy_of
from regroup.workers.train import trainer


def train(context, is_patient=False):
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    context.track(model=model, optimizer=optimizer)
    for step in range(context.restore() + 1, context.config.training.steps + 1):
        x = torch.randn(8, 4)
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        if is_patient:
            context._schedule.wait_for_saver()
        total = context.agree({"loss": loss.item()})
        optimizer.step()
        if not context.commit(step, loss=total["loss"] / context.world_size, tokens=8):
            break
    context.result = {"weight": model.weight.flatten().tolist()}


def saves_every_step(context):
    """Postpone no checkpoint, however fast the ranks are."""
    train(context, is_patient=True)


def initial_values(context):
    """Draw the initial parameters on this layout and report them whole."""
    strategy = strategy_of(context.config)
    meshes = meshes_of(context.layout, context.device.type, sharded=strategy.is_sharded)
    model = parallelize(build_model(context.config.model, 11), meshes, context.device, strategy)
    initialise(model, context.config.seed)
    whole = {
        name: value.full_tensor() if hasattr(value, "full_tensor") else value  # pyright: ignore[reportAttributeAccessIssue]
        for name, value in parameters_of(model)
    }
    context.result = {
        name: hashlib.sha256(value.detach().contiguous().numpy().tobytes()).hexdigest() for name, value in whole.items()
    }


def begins_with_an_overflow(context):
    """Run the built-in trainer with a loss scale whose first losses exceed float16."""
    loss_scale.INITIAL = 2.0**24
    trainer.train(context)


def commits_out_of_order(context):
    context.track(model=nn.Linear(1, 1))
    context.restore()
    context.commit(2, loss=0.0, tokens=0)


def forgets_to_track(context):
    context.restore()


def disagrees(context):
    context.track(model=nn.Linear(1, 1))
    context.restore()
    values = {"ranks": 1.0, "loss": float("nan") if context.rank == 1 else 1.0}
    context.result = dict(context.agree(values))


def digests_without_numpy(context):
    """Compute digests of two stages, one per rank, where tensors cannot become arrays: a job's own Python may lack
    numpy."""

    def refuse(*_):
        raise RuntimeError("Numpy is not available")

    torch.Tensor.numpy = refuse  # pyright: ignore[reportAttributeAccessIssue]
    own = ["first.weight", "second.weight"][context.rank]
    parameters = {own: torch.nn.Parameter(torch.ones(2, 3)), "shared.weight": torch.nn.Parameter(torch.ones(4))}
    found = digests(parameters.items())
    context.result = {"names": list(found), "sizes": [each.numel for each in found.values()]}


def sums_of_all_ranks(context):
    """Numbers whose sum depends on their order, and what every rank then has."""
    total = context.sum([1e16 if context.rank == 0 else 1.0, 0.1 * context.rank, float("nan"), -float("inf")])
    everywhere = [None] * context.world_size
    torch.distributed.all_gather_object(everywhere, struct.pack("<4d", *total).hex())
    context.result = {"everywhere": everywhere, "total": [str(value) for value in total]}


def leaves_blocks_out(context):
    """Train a model whose block 0 is unused, and whose block 1 is used by all ranks except the last."""
    forward = transformer.Block.forward

    def partly(self, x, rotation):
        unused = {0} if context.rank < context.world_size - 1 else {0, 1}
        return x if self.number in unused else forward(self, x, rotation)

    def numbered(*args):
        model = build(*args)
        for number, block in enumerate(model.layers.values()):  # pyright: ignore[reportCallIssue]
            block.number = number  # pyright: ignore[reportAttributeAccessIssue]
        return model

    build, transformer.Block.forward = engine.build_model, partly
    engine.build_model = numbered
    try:
        trainer.train(context)
    finally:
        engine.build_model, transformer.Block.forward = build, forward
    (module,) = context.tracked(nn.Module)
    found = dict(parameters_of(module))
    drawn = numbered(context.config.model, 257)
    initialise(drawn.to_empty(device="cpu"), context.config.seed)
    start = dict(parameters_of(drawn))
    context.result |= {
        "moved": sorted(
            {
                name.split(".")[1]
                for name, value in found.items()
                if name.startswith("layers.") and not torch.equal(value, start[name])
            }
        )
    }
