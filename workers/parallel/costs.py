"""What each block of a model costs, to cut a pipeline by."""

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


def block_costs(model: nn.Module, shape: tuple[int, int]) -> list[float]:
    """Floating-point operations of a forward by block; what is before the first and behind the last goes with them.

    Counted on a model on the meta device, so that every generation on any hardware cuts at the same places: gradients
    are then summed in the same order, and a restart is bitwise the same.

    Args:
        model: a whole model of a family.
        shape: (batch, sequence) of a micro-batch.
    """
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(shape, dtype=torch.int64, device="meta"))
    by_module = {name: sum(counts.values()) for name, counts in counter.get_flop_counts().items()}
    root = type(model).__name__
    layers = model.get_submodule("layers")
    costs = [float(by_module.get(f"{root}.layers.{key}", 0)) for key, _ in layers.named_children()]
    # An embedding has no such operations, so all that is left is behind the last block.
    costs[-1] += by_module[root] - sum(costs)
    return costs
