"""Which checkpoints to give up. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Kept:
    """A finished, trusted checkpoint."""

    uri: str
    generation: int
    step: int
    validation_loss: float | None
    pinned: bool


def surplus(checkpoints: Sequence[Kept], *, keep_last: int, keep_best: int) -> list[Kept]:
    """The checkpoints that neither are among the newest, nor the best, nor pinned; oldest first.

    The newest is always kept, so the last good one is never removed.
    """
    newest_first = sorted(checkpoints, key=lambda item: (item.step, item.generation), reverse=True)
    keep = set(newest_first[: max(1, keep_last)])
    measured = [item for item in newest_first if item.validation_loss is not None]
    keep.update(sorted(measured, key=lambda item: (item.validation_loss, -item.step))[:keep_best])
    return [item for item in reversed(newest_first) if item not in keep and not item.pinned]
