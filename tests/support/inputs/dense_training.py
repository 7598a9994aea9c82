"""A rank's configuration as a training of the dense reference, and the values that both start from."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

import torch
from torch import Tensor

from regroup.workers.contract.rank_config import OptimizerConfig, RankConfig
from regroup.workers.models import build_model
from regroup.workers.parallel.parallelize import initialise
from tests.support.reference.optimizers import SGD, AdamW, Optimizer
from tests.support.reference.training import LossScale, Training
from tests.support.reference.transformer import Transformer, exact


def dense_training(
    config: RankConfig,
    symbols: int,
    seed: int,
    *,
    stored: Callable[[Tensor], Tensor] = exact,
    scale: LossScale | None = None,
) -> Training:
    """Return the training of the reference before its first step."""
    model = Transformer(
        layers=config.model["layers"],
        heads=config.model["heads"],
        kv_heads=config.model["kv_heads"],
        rope_theta=config.model["rope_theta"],
        norm_eps=config.model["norm_eps"],
        stored=stored,
    )
    optimizer = config.training.optimizer
    start = initial_values(config, symbols, seed)
    return Training(model, start, _optimizer(optimizer), clip_norm=optimizer.clip_norm, scale=scale)


@contextmanager
def one_thread() -> Generator[None]:
    """Compute in one thread: for small tensors, threads that wait for each other take far longer than the work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def initial_values(config: RankConfig, symbols: int, seed: int) -> dict[str, Tensor]:
    """Return the values that a rank draws: they are data, not part of what is compared."""
    model = build_model(config.model, symbols).to(torch.float64).to_empty(device="cpu")
    initialise(model, seed)
    return {name: value.detach() for name, value in model.named_parameters()}


def _optimizer(config: OptimizerConfig) -> Optimizer:
    if config.name == "sgd":
        return SGD(config.momentum, config.weight_decay)
    return AdamW(config.betas, config.eps, config.weight_decay)
