"""Pipeline stages of torch."""

from typing import Any

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
