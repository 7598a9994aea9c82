"""Steps of the engine on any layout, compared on the ranks with what one process of plain torch computes."""

import math
from dataclasses import replace

import torch
from torch import distributed as dist
from torch.distributed.tensor import DTensor
from torch.nn import functional

from regroup.workers.data.sampler import IGNORED, MicroBatch, dealt
from regroup.workers.models import build_model
from regroup.workers.models.batch_norm import batch_norms
from regroup.workers.parallel import ddp as module
from regroup.workers.parallel.engine import Engine
from regroup.workers.parallel.mesh import local
from regroup.workers.parallel.parallelize import initialise
from regroup.workers.parallel.parameter_names import buffers_of, parameters_of
from regroup.workers.parallel.strategy import strategy_of

VOCABULARY, SEQUENCE, IMAGE, MICRO_BATCH, COUNT, STEPS, SEED = 24, 16, (2, 6, 6), 2, 4, 5, 11
COMPARED = (1, STEPS)


def batches(step, family="transformer", count=COUNT):
    """Return the micro-batches of a step. Some labels are ignored, as at the ends of documents."""
    generator = torch.Generator().manual_seed(step)
    made = []
    for _ in range(count):
        if family == "convnet":
            inputs, shape = torch.randn((MICRO_BATCH, *IMAGE), generator=generator), (MICRO_BATCH,)
        else:
            shape = (MICRO_BATCH, SEQUENCE)
            inputs = torch.randint(VOCABULARY, shape, generator=generator)
        labels = torch.randint(VOCABULARY, shape, generator=generator)
        if family == "transformer":
            labels[torch.rand(labels.shape, generator=generator) < 0.1] = IGNORED
        made.append(MicroBatch(inputs, labels, ()))
    return made


def dummy(family):
    """Return the dummy micro-batch of a rank that would otherwise compute fewer."""
    batch = batches(0, family)[0]
    return MicroBatch(torch.zeros_like(batch.inputs), torch.full_like(batch.labels, IGNORED), ())


def engine_of(context, count, optimizer, loss_scale=1 / 100):
    config = context.config
    return Engine(
        config.model, VOCABULARY, context.layout, context.device, strategy_of(config), optimizer,
        micro_batches=count, example=dummy(config.model["family"]).inputs.to("meta"), loss_scale=loss_scale,
        phase=lambda _: None,
    )  # fmt: skip


def dense(context):
    """Compute the reference in one process, with torch's own optimizers and clipping, and save it to a file.

    Computes the whole batch at once, except for a model that normalizes over micro-batches.
    """
    config, dtype = context.config, DTYPES[context.config.training.precision]
    count = config.args.get("count", COUNT)
    found = {}
    for name in ("adamw", "sgd"):
        optimizer_config = replace(config.training.optimizer, name=name)
        model = build_model(config.model, VOCABULARY).to(dtype).to_empty(device="cpu")
        initialise(model, SEED)
        optimizer = torch_optimizer(model, optimizer_config)
        for step in range(1, STEPS + 1):
            optimizer.zero_grad()
            made = batches(step, config.model["family"], count)
            labels = torch.cat([batch.labels for batch in made])
            if config.model.get("norm_over") == "micro_batch":
                logits = torch.cat([model(batch.inputs) for batch in made])
            else:
                logits = model(torch.cat([batch.inputs for batch in made]))
            loss = functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED)
            loss.backward()
            gradients = {key: value.grad.clone() for key, value in model.named_parameters()}
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), optimizer_config.clip_norm)
            optimizer.step()
            track_statistics(model)
            if step in COMPARED:
                parameters = {key: value.detach().clone() for key, value in model.state_dict().items()}
                found[name, step] = (float(loss), float(norm), gradients, parameters)
    torch.save(found, config.args["reference"])


def spread(context):
    """Compute the same with the engine; `context.result` has the errors.

    Of `config.args`, `count` is the number of micro-batches of a step, and `scale` multiplies the loss as in float16.
    """
    config, count = context.config, context.config.args.get("count", COUNT)
    reference = torch.load(config.args["reference"], weights_only=True)
    mutant, worst, family = config.args.get("mutant"), {}, config.model["family"]
    if mutant == "missing reduce":
        module._sum_hook = unreduced
    for name in config.args.get("optimizers", ("adamw", "sgd")):
        place = context.data_place
        numbers = dealt(count, place.index, place.degree)
        engine = engine_of(context, len(numbers), replace(config.training.optimizer, name=name))
        engine.scale.value = config.args.get("scale", 1.0)
        engine.initialise(SEED)
        if mutant == "wrong shard axis":
            transpose_shard(dict(parameters_of(engine.model)))
        for step in range(1, STEPS + 1):
            made = batches(step, family, count)
            if mutant == "dropped token" and step == 1:
                made[0].labels[0, (made[0].labels[0] != IGNORED).nonzero()[0]] = IGNORED
            mine = [made[number] if number < count else dummy(family) for number in numbers]
            loss = engine.gradients(mine)
            if mutant == "norm gradient":
                scale_one(dict(parameters_of(engine.model)))
            tokens = sum(batch.valid_labels for batch in mine) if place.speaks else 0
            loss, tokens, squared = context.sum([loss, tokens, engine.squared_norm()])
            correction = 100 / tokens
            norm = correction * math.sqrt(squared)
            gradients = whole({key: value.grad for key, value in parameters_of(engine.model)})
            engine.update(config.training.optimizer.lr, norm, correction)
            if step in COMPARED:
                parameters = whole({**dict(parameters_of(engine.model)), **dict(buffers_of(engine.model))})
                factor = correction / engine.scale.value
                found = (loss / tokens, norm, {key: value * factor for key, value in gradients.items()}, parameters)
                worst[f"{name} after {step}"] = compare(found, reference[name, step])
    context.result = gathered(worst)


def breaks(context):
    """Let a block of the second stage raise."""

    def raises(*_):
        raise ConnectionError("the network is gone")

    engine = engine_of(context, COUNT, context.config.training.optimizer)
    engine.initialise(SEED)
    if context.rank == 1:
        engine.model[0].layers["3"].forward = raises  # pyright: ignore[reportAttributeAccessIssue]
    engine.gradients(batches(1))


def compare(found, reference):
    """Relative errors; of tensors ‖g−r‖ / max(‖r‖, 1e-3·‖r_all‖·√(n_t/n)), so that one that hardly counts does not."""
    loss, norm, *kinds = found
    errors = {"loss": abs(loss / reference[0] - 1), "norm": abs(norm / reference[1] - 1)}
    for kind, tensors, expected in zip(("gradients", "parameters"), kinds, reference[2:], strict=True):
        assert tensors.keys() <= expected.keys()
        total = math.sqrt(sum(float(value.double().square().sum()) for value in expected.values()))
        count = sum(value.numel() for value in expected.values())
        errors[kind] = {
            key: float((value.double() - expected[key].double()).norm())
            / max(float(expected[key].double().norm()), 1e-3 * total * math.sqrt(value.numel() / count))
            for key, value in tensors.items()
        }
        errors[f"all {kind}"] = sum(
            float((v.double() - expected[k].double()).square().sum()) for k, v in tensors.items()
        )
        errors[f"all {kind}"] = math.sqrt(errors[f"all {kind}"]) / total
    return errors


def gathered(worst):
    """Check that ranks compared every tensor of the model, and return the largest error of each kind."""
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, worst)
    result = {}
    for key in worst:
        result[key] = {}
        for kind in worst[key]:
            values = [some[key][kind] for some in every]
            if isinstance(values[0], dict):
                merged = {name: max(v.get(name, 0.0) for v in values) for v in values for name in v}
                result[key]["compared " + kind] = len(merged)
                result[key][kind] = max(merged.values())
            else:
                result[key][kind] = max(values)
    return result


def whole(tensors):
    return {
        key: (value.full_tensor() if isinstance(value, DTensor) else value).detach().clone()
        for key, value in tensors.items()
    }


def torch_optimizer(model, config):
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    if config.name == "sgd":
        return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum)
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps)


def track_statistics(model):
    """Update the running statistics of batch normalization by their definition: with the mean over micro-batches."""
    for norm in batch_norms(model):
        for mean, variance in [torch.stack(norm.pop_batch_statistics()).mean(0)]:
            norm.running_mean.mul_(0.9).add_(0.1 * mean)
            norm.running_var.mul_(0.9).add_(0.1 * variance)


def unreduced(_, bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def transpose_shard(parameters):
    """Shard along the wrong axis: use rows of the transposed matrix."""
    query = parameters["layers.0.attention.query.weight"]
    transposed = query.full_tensor().T
    rows = local(query).shape[0]
    rank = dist.get_rank()
    with torch.no_grad():
        local(query).copy_(transposed[rank * rows : (rank + 1) * rows])


def scale_one(parameters):
    if "norm.weight" in parameters:  # the stage that has it
        local(parameters["norm.weight"].grad).mul_(1 + 1e-6)


DTYPES = {"fp64": torch.float64, "fp32": torch.float32}
