"""What a model computes in. Parameters, gradients that are summed, and optimizer state stay in full precision."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy

from regroup.workers.parallel.mesh import Meshes

_MASTER = {"fp16": torch.float32, "bf16": torch.float32, "fp32": torch.float32, "fp64": torch.float64}
_HALF = {"fp16": torch.float16, "bf16": torch.bfloat16}


def master_dtype(precision: str) -> torch.dtype:
    """Type of parameters and optimizer state."""
    return _MASTER[precision]


def stream_dtype(precision: str) -> torch.dtype:
    """Type of activations between blocks of a sharded model."""
    return _HALF.get(precision, master_dtype(precision))


def reduce_dtype(precision: str, reduce: str) -> torch.dtype:
    """Type in which gradients are summed over ranks."""
    return torch.bfloat16 if reduce == "bf16" else master_dtype(precision)


def fsdp_policy(precision: str, reduce: str) -> MixedPrecisionPolicy:
    """Parameters are gathered in the type of computation, gradients summed in full precision, if not told otherwise.

    Inputs of blocks are not cast: the rotary angles must stay in float32.
    """
    return MixedPrecisionPolicy(_HALF.get(precision), reduce_dtype(precision, reduce), cast_forward_inputs=False)


def autocast(precision: str, meshes: Meshes, device_type: str) -> AbstractContextManager[object]:
    """Around a forward: DDP keeps full parameters and casts per operation, where FSDP casts when it gathers."""
    if precision in _HALF and not meshes.is_sharded:
        return torch.autocast(device_type, _HALF[precision])
    return nullcontext()
