"""Declarations of a family in addition to its model: roles in tensor parallelism, and a tiny example."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from torch import Tensor


class Role(StrEnum):
    """Role of a module in tensor parallelism."""

    EMBEDDING = "embedding"
    """Token ids → residual stream; each rank holds some rows of the vocabulary, and adds nothing for others."""
    STREAM = "stream"
    """Works on the residual stream: a norm, or a convolution where ranks do not share the stream along a sequence."""
    SPLIT = "split"
    """Takes the whole residual stream, and its column and row parts are split: attention, feed-forward."""
    COLUMN = "column"
    """Linear; each rank computes some of its outputs, with no communication."""
    CHANNELS = "channels"
    """Works channel by channel on what column parts give; each rank has its channels' parameters and buffers."""
    ROW = "row"
    """Linear; each rank holds some of its inputs, and the sums are summed over ranks."""
    HEAD = "head"
    """Linear, residual stream → logits; each rank computes those of some of the vocabulary."""
    TIED_HEAD = "tied head"
    """(Residual stream, embedding) → logits, without parameters of its own."""


Plan = Mapping[str, Role]
"""Patterns of module names (as in fnmatch) → roles."""


@dataclass(frozen=True)
class Tiny:
    """The smallest useful model of a family, with inputs and labels."""

    config: Mapping[str, Any]
    """Fields that differ from the job's model."""
    inputs: Tensor
    labels: Tensor
    symbols: int
    """Number of token ids or classes."""
