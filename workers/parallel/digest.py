"""One number that two runs share only if their parameters are bitwise alike."""

import ctypes
import hashlib
from collections.abc import Iterable

from torch import Tensor, nn
from torch.distributed.tensor import DTensor


def parameters_digest(parameters: Iterable[tuple[str, nn.Parameter]]) -> str:
    """sha256 over parameters by sorted canonical name, gathered one at a time. Collective; alike on all ranks."""
    digest = hashlib.sha256()
    for name, parameter in sorted(parameters, key=lambda named: named[0]):
        value = _whole(parameter.detach()).cpu().contiguous()
        digest.update(f"{name}:{value.dtype}:{tuple(value.shape)};".encode())
        if value.nbytes:  # as memory: a job's own Python need not have numpy
            digest.update((ctypes.c_char * value.nbytes).from_address(value.data_ptr()))
    return digest.hexdigest()


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
