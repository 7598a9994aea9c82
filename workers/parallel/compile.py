"""Blocks through torch.compile: each a graph of its own, so that sharding and stages stay outside of them."""

from torch import nn


def compile_blocks(blocks: nn.ModuleDict, mode: str, kept_share: float | None) -> None:
    """In place: compiled at their first forward. Names of parameters stay.

    Args:
        mode: as torch.compile has it, or `off`.
        kept_share: of the activations that a block would keep for its backward, so much; the rest is computed again.
    """
    if mode == "off":
        return
    from torch._functorch import config as graphs  # a second of imports, for those who compile
    from torch._inductor import config as inductor

    inductor.compile_threads = 1  # a pool would be processes that nobody owns once a rank is killed
    if kept_share is not None:
        graphs.activation_memory_budget = kept_share
    for block in blocks.values():
        block.compile(mode=None if mode == "default" else mode, dynamic=False)
