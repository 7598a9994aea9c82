"""Activation checkpointing: recompute activations in the backward pass instead of keeping them (Chen et al. 2016)."""

import math
from collections import Counter
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from regroup.workers.torch_internals.operations import ATTENTION, COLLECTIVES
from regroup.workers.torch_internals.sharding import recompute_in_backward

_MATRIX_PRODUCTS = frozenset({torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.addmm.default})


def recompute(blocks: nn.ModuleDict, policy: str | int | float, depth: int) -> None:
    """Wrap blocks, in place.

    Args:
        blocks: by number in the whole model.
        policy: `none`; `full`, every block; `selective`, every block but attention, collectives and every second
            matrix product; a number k, all but every k-th block; `sqrt`, as k = √depth. A share is the compiler's.
        depth: blocks of the whole model.
    """
    if policy == "none" or isinstance(policy, float):
        return
    every = round(math.sqrt(depth)) if policy == "sqrt" else policy
    for key, block in blocks.items():
        if isinstance(every, str) or int(key) % every:
            blocks[key] = recompute_in_backward(block, _selective if policy == "selective" else None)


def _selective() -> Any:
    # Start a new count in each forward: the recomputation repeats the order of the products.
    return create_selective_checkpoint_contexts(partial(_decide, Counter[bool]()))


def _decide(seen: Counter[bool], context: Any, operation: Any, *args: Any, **options: Any) -> CheckpointPolicy:
    if operation in ATTENTION or operation in COLLECTIVES:
        return CheckpointPolicy.MUST_SAVE
    if operation in _MATRIX_PRODUCTS:
        seen[context.is_recompute] += 1
        if seen[context.is_recompute] % 2:
            return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE
