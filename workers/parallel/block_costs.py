"""What each block of a model costs, to cut a pipeline by."""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from regroup.workers.models import Model


def block_costs(build: Callable[[], nn.Module], example: Tensor) -> list[float]:
    """Floating-point operations of a forward by block; what is before the first and behind the last goes with them.

    Counted on a model on the meta device, so that every generation on any hardware cuts at the same places: gradients
    are then summed in the same order, and a restart is bitwise the same.

    Args:
        build: makes a whole model of a family on the meta device.
        example: inputs of a micro-batch there.
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
    """Operations of forward and backward, which takes twice as many (Kaplan et al. 2020, §2.1).

    Args:
        build: makes a whole model of a family on the meta device.
        example: inputs of a micro-batch there.
    """
    return 3 * int(_counted(build(), example)[0])


def _counted(model: nn.Module, example: Tensor) -> tuple[float, list[float]]:
    """Operations of all of it, and of each block."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(example)
    by_module = {name: sum(counts.values()) for name, counts in counter.get_flop_counts().items()}
    root = type(model).__name__
    blocks = [key for key, _ in cast(Model, model).layers.named_children()]
    return float(by_module[root]), [float(by_module.get(f"{root}.layers.{key}", 0)) for key in blocks]
