"""Pipeline stages of torch."""

from typing import Any

from torch import distributed as dist
from torch.distributed.pipelining import PipelineStage

__all__ = ["Stage"]


class Stage(PipelineStage):
    """A stage whose outputs are compared with their declared shape only if another stage receives them.

    torch before 2.13 compares those of the last stage, too. They are the logits: nothing is allocated for them, and
    their shape depends on tensor parallelism.
    """

    def _validate_fwd_outputs(self, outputs: Any) -> None:
        if not self.is_last:
            super()._validate_fwd_outputs(outputs)  # pyright: ignore

    def _get_init_p2p_neighbors_ops(self) -> list[dist.P2POp]:
        # A stage of a V-shaped schedule may have its neighbour on its own rank. gloo has no connection to itself, and
        # torch before 2.13 lists the two.
        own = dist.get_rank()
        return [each for each in super()._get_init_p2p_neighbors_ops() if each.peer != own]  # pyright: ignore
