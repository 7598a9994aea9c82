"""Data types of computation. Parameters, summed gradients and optimizer states keep full precision."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy

from regroup.workers.parallel.mesh import Meshes

_MASTER = {"fp16": torch.float32, "bf16": torch.float32, "fp32": torch.float32, "fp64": torch.float64}
_HALF = {"fp16": torch.float16, "bf16": torch.bfloat16}


def master_dtype(precision: str) -> torch.dtype:
    """Return the data type of parameters and optimizer states."""
    return _MASTER[precision]


def stream_dtype(precision: str) -> torch.dtype:
    """Return the data type of activations between the blocks of a sharded model."""
    return _HALF.get(precision, master_dtype(precision))


def reduce_dtype(precision: str, reduce: str) -> torch.dtype:
    """Return the data type in which gradients are summed over ranks."""
    return torch.bfloat16 if reduce == "bf16" else master_dtype(precision)


def fsdp_policy(precision: str, reduce: str) -> MixedPrecisionPolicy:
    """Gather parameters in the data type of computation. Sum gradients in full precision unless `reduce` is bf16.

    Inputs of blocks are not cast: the rotary angles must stay in float32.
    """
    return MixedPrecisionPolicy(_HALF.get(precision), reduce_dtype(precision, reduce), cast_forward_inputs=False)


def autocast(precision: str, meshes: Meshes, device_type: str) -> AbstractContextManager[object]:
    """Wrap a forward pass: DDP keeps full parameters and casts per operation, while FSDP casts when it gathers."""
    if precision in _HALF and not meshes.is_sharded:
        return torch.autocast(device_type, _HALF[precision])
    return nullcontext()
