"""Kinds of objects that training code tracks, each with code that updates them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.optim import lr_scheduler as lrs
from torch.optim.swa_utils import SWALR, AveragedModel

from tests.support.inputs.tracked_objects import (
    Complex,
    Everything,
    ExtraState,
    Graph,
    Hooked,
    Lora,
    MovingAverage,
    Recurrent,
    ReplacedBuffer,
    SparseEmbedding,
    Tied,
    Warm,
)

Things = dict[str, Any]
"""Tracked objects by name."""
Update = Callable[[Things, int], None]
"""Code of one step."""


def train(things: Things, step: int) -> None:
    """Make one ordinary update from random data."""
    optimizer = things["optimizer"]
    loss = things["model"](torch.randn(4, 6)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for name, thing in things.items():
        if isinstance(thing, lrs.ReduceLROnPlateau):
            thing.step(loss.item())
        elif name.startswith("schedule"):
            thing.step()


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Linear(8, 6), nn.BatchNorm1d(6))


def with_optimizer(kind: Callable[..., torch.optim.Optimizer], **options: Any) -> Callable[[], Things]:
    def build() -> Things:
        model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.Linear(8, 6, bias=False))
        return {"model": model, "optimizer": kind(model.parameters(), lr=0.05, **options)}

    return build


def with_schedule(schedule: Callable[[torch.optim.Optimizer], Any]) -> Callable[[], Things]:
    def build() -> Things:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return {"model": model, "optimizer": optimizer, "schedule": schedule(optimizer)}

    return build


def with_model(build_model: Callable[[], nn.Module]) -> Callable[[], Things]:
    def build() -> Things:
        model = build_model()
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return {"model": model, "optimizer": torch.optim.AdamW(trained, lr=0.05)}

    return build


def lbfgs_step(things: Things, step: int) -> None:
    x = torch.randn(4, 6)

    def closure() -> Tensor:
        things["optimizer"].zero_grad()
        loss = things["model"](x).pow(2).mean()
        loss.backward()
        return loss

    things["optimizer"].step(closure)


def averaged() -> Things:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return {"model": model, "optimizer": optimizer, "ema": AveragedModel(model), "schedule": SWALR(optimizer, 0.05)}


def average(things: Things, step: int) -> None:
    train(things, step)
    things["ema"].update_parameters(things["model"])


def unfrozen(*, freeze: bool) -> Things:
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    if freeze:
        model[0].requires_grad_(False)
    return {"model": model, "optimizer": torch.optim.AdamW(model[1].parameters(), lr=0.05)}


def add_group_once(things: Things, step: int) -> None:
    if step >= 2 and len(things["optimizer"].param_groups) == 1:
        things["optimizer"].add_param_group({"params": list(things["model"][0].parameters()), "lr": 0.01})
    train(things, step)


class AddAgain:
    """Training code that remembers in a variable of its own, which a restart loses, whether it has added the group."""

    def __init__(self) -> None:
        self.has_added = False

    def __call__(self, things: Things, step: int) -> None:
        if step >= 2 and not self.has_added:
            self.has_added = True
            things["model"][0].requires_grad_(True)
            things["optimizer"].add_param_group({"params": things["model"][0].parameters(), "lr": 0.01})
        train(things, step)


def unfreeze_at_step_2(things: Things, step: int) -> None:
    if step == 2:
        things["model"][0].requires_grad_(True)
        things["model"][1].eval()
    train(things, step)


def partly_frozen() -> Things:
    model = nn.Sequential(nn.Linear(6, 6).requires_grad_(False), nn.BatchNorm1d(6), nn.Linear(6, 6))
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=0.05)}


def mixed() -> Things:
    model = network().to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return {"model": model, "optimizer": optimizer}


def mixed_step(things: Things, step: int) -> None:
    things["model"](torch.randn(4, 6, dtype=torch.bfloat16)).float().pow(2).mean().backward()
    things["optimizer"].step()
    for values in things["optimizer"].state.values():
        values["master"] = values.get("master", torch.zeros(1)) + 0.25  # float32, and the parameters are bfloat16
    things["optimizer"].zero_grad()


def scaled() -> Things:
    things = with_model(network)()
    return things | {"scaler": torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)}


def scaled_step(things: Things, step: int) -> None:
    things["optimizer"].zero_grad()
    things["scaler"].scale(things["model"](torch.randn(4, 6)).pow(2).mean()).backward()
    things["scaler"].step(things["optimizer"])
    things["scaler"].update()


def with_other(make: Callable[[nn.Module], Any]) -> Callable[[], Things]:
    def build() -> Things:
        things = with_model(network)()
        return things | {"schedule": make(things["model"])}

    return build


def two_optimizers() -> Things:
    model, critic = nn.Linear(6, 6), nn.Linear(6, 6)
    return {
        "model": nn.Sequential(model, critic),
        "optimizer": torch.optim.AdamW(model.parameters(), lr=0.05),
        "second": torch.optim.SGD(critic.parameters(), lr=0.1, momentum=0.9),
    }


def two_steps(things: Things, step: int) -> None:
    train(things, step)
    things["second"].step()
    things["second"].zero_grad()


def tensor_settings() -> Things:
    model = network()
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1), momentum=0.9)}


def decay_tensor(things: Things, step: int) -> None:
    train(things, step)
    things["optimizer"].param_groups[0]["lr"].mul_(0.9)


def adagrad_groups() -> Things:
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    groups = [{"params": model[0].parameters(), "lr": 0.2}, {"params": model[1].parameters()}]
    return {"model": model, "optimizer": torch.optim.Adagrad(groups, lr=0.1)}


KINDS: dict[str, tuple[Callable[[], Things], Callable[[], Update]]] = {
    "sgd": (with_optimizer(torch.optim.SGD, momentum=0.9, nesterov=True), lambda: train),
    "adam-amsgrad": (with_optimizer(torch.optim.Adam, amsgrad=True), lambda: train),
    "adamw-foreach": (with_optimizer(torch.optim.AdamW, foreach=True), lambda: train),
    "adamw-fused": (with_optimizer(torch.optim.AdamW, fused=True), lambda: train),
    "adafactor": (with_optimizer(torch.optim.Adafactor), lambda: train),
    "adadelta": (with_optimizer(torch.optim.Adadelta), lambda: train),
    "adagrad-groups": (adagrad_groups, lambda: train),
    "adamax": (with_optimizer(torch.optim.Adamax), lambda: train),
    "asgd": (with_optimizer(torch.optim.ASGD), lambda: train),
    "muon": (with_optimizer(torch.optim.Muon), lambda: train),
    "nadam": (with_optimizer(torch.optim.NAdam), lambda: train),
    "radam": (with_optimizer(torch.optim.RAdam), lambda: train),
    "rmsprop": (with_optimizer(torch.optim.RMSprop, centered=True, momentum=0.5), lambda: train),
    "rprop": (with_optimizer(torch.optim.Rprop), lambda: train),
    "lbfgs": (with_optimizer(torch.optim.LBFGS, max_iter=2), lambda: lbfgs_step),
    "sparse-adam": (
        lambda: {"model": (model := SparseEmbedding()), "optimizer": torch.optim.SparseAdam(model.parameters())},
        lambda: train,
    ),
    "string-keys": (with_optimizer(Warm), lambda: train),
    "tensor-lr": (tensor_settings, lambda: decay_tensor),
    "two-optimizers": (two_optimizers, lambda: two_steps),
    "cosine": (with_schedule(lambda optimizer: lrs.CosineAnnealingWarmRestarts(optimizer, 2)), lambda: train),
    "one-cycle": (with_schedule(lambda optimizer: lrs.OneCycleLR(optimizer, 0.2, 10)), lambda: train),
    "cyclic": (with_schedule(lambda optimizer: lrs.CyclicLR(optimizer, 0.01, 0.1, 2)), lambda: train),
    "plateau": (with_schedule(lambda optimizer: lrs.ReduceLROnPlateau(optimizer, patience=0)), lambda: train),
    "lambda": (with_schedule(lambda optimizer: lrs.LambdaLR(optimizer, lambda step: 0.9**step)), lambda: train),
    "sequential": (
        with_schedule(
            lambda o: lrs.SequentialLR(o, [lrs.ConstantLR(o, 0.5, 2), lrs.ExponentialLR(o, 0.9)], milestones=[2])
        ),
        lambda: train,
    ),
    "chained": (
        with_schedule(lambda o: lrs.ChainedScheduler([lrs.LinearLR(o), lrs.MultiStepLR(o, [2, 4])])),
        lambda: train,
    ),
    "averaged-model": (averaged, lambda: average),
    "averaged-weights": (with_other(MovingAverage), lambda: train),
    "scaler": (scaled, lambda: scaled_step),
    "every-type": (with_other(lambda model: Everything()), lambda: train),
    "extra-state": (with_model(ExtraState), lambda: train),
    "hooked-state": (with_model(Hooked), lambda: train),
    "sparse-coo-buffer": (with_model(lambda: Graph(Tensor.to_sparse)), lambda: train),
    "sparse-csr-buffer": (with_model(lambda: Graph(Tensor.to_sparse_csr)), lambda: train),
    "replaced-buffers": (with_model(ReplacedBuffer), lambda: train),
    "lora": (with_model(Lora), lambda: train),
    "tied": (with_model(Tied), lambda: train),
    "lstm": (with_model(Recurrent), lambda: train),
    "complex": (with_model(Complex), lambda: train),
    "weight-norm": (with_model(lambda: parametrizations.weight_norm(nn.Linear(6, 6))), lambda: train),
    "spectral-norm": (with_model(lambda: parametrizations.spectral_norm(nn.Linear(6, 6))), lambda: train),
    "mixed-precision": (mixed, lambda: mixed_step),
    "added-group": (lambda: unfrozen(freeze=False), lambda: add_group_once),
    "added-group-again": (lambda: unfrozen(freeze=True), AddAgain),
    "unfrozen-layer": (partly_frozen, lambda: unfreeze_at_step_2),
}
