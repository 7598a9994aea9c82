"""What the modules of a model are to tensor parallelism: what a family declares, and `parallel/tensor.py` applies."""

from collections.abc import Mapping
from enum import StrEnum


class Role(StrEnum):
    """What a module is to tensor parallelism."""

    EMBEDDING = "embedding"
    """Token ids → residual stream; each rank holds some rows of the vocabulary, and adds nothing for others."""
    STREAM = "stream"
    """Works on the residual stream position by position: a norm."""
    SPLIT = "split"
    """Takes the whole residual stream, and its column and row parts are split: attention, feed-forward."""
    COLUMN = "column"
    """Linear; each rank computes some of its outputs, with no communication."""
    ROW = "row"
    """Linear; each rank holds some of its inputs, and the sums are summed over ranks."""
    HEAD = "head"
    """Linear, residual stream → logits; each rank computes those of some of the vocabulary."""
    TIED_HEAD = "tied head"
    """(Residual stream, embedding) → logits, without parameters of its own."""


Plan = Mapping[str, Role]
"""Patterns of module names, as fnmatch has them, to roles."""
