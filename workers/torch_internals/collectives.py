"""Collectives on one tensor. torch 2.13 has renamed two of them."""

from typing import Any

from torch import Tensor
from torch import distributed as dist

_GATHER = ("all_gather_single", "all_gather_into_tensor")
_SCATTER = ("reduce_scatter_single", "reduce_scatter_tensor")
"""Name of each function, the new one first."""


def all_gather_single(output: Tensor, part: Tensor, group: dist.ProcessGroup | None) -> None:
    """Gather a part of each rank of a group.

    Args:
        output: receives the parts, one behind the other along its first dimension.
        part: part of this rank.
        group: ranks that take part; None for all.
    """
    _function(_GATHER)(output, part, group=group)


def reduce_scatter_single(output: Tensor, tensor: Tensor, group: dist.ProcessGroup | None) -> None:
    """Sum a tensor over the ranks of a group, and return to each rank its part of the sum.

    Args:
        output: receives the part of this rank.
        tensor: parts of all ranks, one behind the other along its first dimension.
        group: ranks that take part; None for all.
    """
    _function(_SCATTER)(output, tensor, group=group)


def _function(names: tuple[str, str]) -> Any:
    return next(getattr(dist, name) for name in names if hasattr(dist, name))
