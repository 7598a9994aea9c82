"""Collectives, activations and allocations of an engine's step, on any layout."""

from dataclasses import replace

from parity_loop import batches, engine_of
from torch import distributed as dist

from regroup.workers.data.sampler import dealt
from regroup.workers.parallel.collective_counter import Collectives
from regroup.workers.parallel.mesh import local
from regroup.workers.parallel.pipeline_parallel import Pipeline


def counted(context):
    config = context.config
    place = context.data_place
    count = config.args.get("micro_batches", 8)
    numbers = dealt(count, place.index, place.degree)
    engine = engine_of(context, len(numbers), replace(config.training.optimizer, name="adamw"))
    engine.initialise(0)
    made = (batches(1) * 4)[:count]
    for _ in range(2):  # the first step also builds what is kept
        found = Collectives()
        with found:
            engine.gradients([made[number] for number in numbers])
            engine.update(0.01, 1.0, 1.0)
    parameters = list(engine.model.parameters())
    state = [value for own in engine.optimizer.state.values() for value in own.values() if value.dim() > 0]
    own = {
        "calls": dict(found.calls),
        "bytes": dict(found.bytes),
        "parameters": sum(p.numel() for p in parameters),
        "parameter_bytes": sum(local(p).nbytes for p in parameters),
        "gradient_bytes": sum(local(p.grad).nbytes for p in parameters),
        "optimizer_bytes": sum(local(value).nbytes for value in state),
        "live": engine.passes.peak_live if isinstance(engine.passes, Pipeline) else None,
        "dtypes": sorted({str(p.dtype) for p in parameters} | {str(p.grad.dtype) for p in parameters}),
    }
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, own)
    context.result = {"ranks": every}
