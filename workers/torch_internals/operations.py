"""Names of torch's operators, and its dispatch of them."""

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

__all__ = ["ATTENTION", "COLLECTIVES", "COLLECTIVE_NAMESPACES", "TorchDispatchMode", "is_traceable_wrapper_subclass",
           "multiply_all_", "norms_of", "tree_leaves"]  # fmt: skip

ATTENTION = frozenset({
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
})  # fmt: skip
"""Kernels of `scaled_dot_product_attention`."""
COLLECTIVES = frozenset({
    torch.ops._c10d_functional.all_reduce.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
    torch.ops._c10d_functional.all_gather_into_tensor.default,
})  # fmt: skip
"""Collectives that tensor parallelism starts."""
COLLECTIVE_NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd")
"""Namespaces of all operators that are collectives."""


def norms_of(tensors: list[Tensor]) -> list[Tensor]:
    """Return the 2-norm of each tensor, with few kernels for all of them."""
    return list(torch._foreach_norm(tensors))  # pyright: ignore[reportPrivateUsage]


def multiply_all_(tensors: list[Tensor], factor: float) -> None:
    """Multiply tensors in place, with few kernels for all of them."""
    torch._foreach_mul_(tensors, factor)  # pyright: ignore[reportPrivateUsage]
