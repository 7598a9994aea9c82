"""Cost of each block of a model, used to cut a pipeline."""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from regroup.workers.models import Model


def block_costs(build: Callable[[], nn.Module], example: Tensor) -> list[float]:
    """Return the forward FLOPs of each block. Layers before the first and after the last block are added to these.

    Counts operations on the meta device, so every generation cuts at the same places on any hardware. Gradients are
    then summed in the same order, and a restart is bitwise equal.

    Args:
        build: returns a whole model on the meta device.
        example: inputs of a micro-batch on the meta device.
    """
    total, costs = _counted(build(), example)
    first = build()
    cast(Model, first).cut(range(1))
    beginning, of_first = _counted(first, example)
    before = beginning - of_first[0] if len(costs) > 1 else 0.0
    behind = total - before - sum(costs)
    costs[0] += before
    costs[-1] += behind
    return costs


def step_flops(build: Callable[[], nn.Module], example: Tensor) -> int:
    """Return the FLOPs of forward and backward. The backward pass takes twice as many (Kaplan et al. 2020, §2.1).

    Args:
        build: returns a whole model on the meta device.
        example: inputs of a micro-batch on the meta device.
    """
    return 3 * int(_counted(build(), example)[0])


def _counted(model: nn.Module, example: Tensor) -> tuple[float, list[float]]:
    """Return the FLOPs of the whole model, and of each block."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(example)
    by_module = {name: sum(counts.values()) for name, counts in counter.get_flop_counts().items()}
    root = type(model).__name__
    blocks = [key for key, _ in cast(Model, model).layers.named_children()]
    return float(by_module[root]), [float(by_module.get(f"{root}.layers.{key}", 0)) for key in blocks]
