"""Values that are computed in float64 and stored in half precision: overflow and rounding without half arithmetic."""

from typing import Any

import torch
from torch import Tensor


def stored_in_float16(x: Tensor) -> Tensor:
    """Return the value after it was stored in float16. Its gradient is stored in float16, too."""
    return _Stored.apply(x)  # pyright: ignore[reportReturnType]


class _Stored(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        del ctx
        return x.to(torch.float16).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        del ctx
        return gradient.to(torch.float16).to(gradient.dtype)
