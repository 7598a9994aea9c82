"""Blocks through torch.compile: each a graph of its own, so that sharding and stages stay outside of them."""

from torch import nn

from regroup.workers.torch_internals import compiler


def compile_blocks(blocks: nn.ModuleDict, mode: str, kept_share: float | None) -> None:
    """Compile blocks in place, at their first forward. Parameter names do not change.

    Args:
        blocks: blocks by number.
        mode: mode of torch.compile, or `off`.
        kept_share: share of a block's activations that the compiler may keep for the backward pass; None: all.
    """
    if mode == "off":
        return
    compiler.use_one_thread()
    if kept_share is not None:
        compiler.limit_kept_activations(kept_share)
    for block in blocks.values():
        block.compile(mode=None if mode == "default" else mode, dynamic=False)
