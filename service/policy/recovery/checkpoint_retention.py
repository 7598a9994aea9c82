"""Choose the checkpoints to delete. Pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from regroup.workers.contract.checkpoint_manifest import FOLDER


@dataclass(frozen=True)
class FinishedCheckpoint:
    """A complete, verified checkpoint."""

    uri: str
    generation: int
    step: int
    validation_loss: float | None
    pinned: bool


@dataclass(frozen=True)
class UnfinishedCheckpoint:
    """A checkpoint folder without a manifest."""

    uri: str
    generation: int
    step: int

    @classmethod
    def from_uri(cls, uri: str) -> "UnfinishedCheckpoint | None":
        """Parse a checkpoint URI; None if the folder was not created by a checkpoint save."""
        match = FOLDER.fullmatch(uri.rstrip("/").rpartition("/")[2])
        return cls(uri, int(match[2]), int(match[1])) if match else None


def find_surplus(
    checkpoints: Sequence[FinishedCheckpoint], *, keep_last: int, keep_best: int
) -> list[FinishedCheckpoint]:
    """Return the checkpoints that are neither among the newest, nor the best, nor pinned, the oldest first.

    The newest checkpoint is always retained.
    """
    newest_first = sorted(checkpoints, key=lambda item: (item.step, item.generation), reverse=True)
    retained = set(newest_first[: max(1, keep_last)])
    measured = [item for item in newest_first if item.validation_loss is not None]
    retained.update(sorted(measured, key=lambda item: (item.validation_loss, -item.step))[:keep_best])
    return [item for item in reversed(newest_first) if item not in retained and not item.pinned]


def find_abandoned(uris: Iterable[str], failed: Collection[str], generation: int) -> list[UnfinishedCheckpoint]:
    """Return the unfinished checkpoints that no process will finish: their save failed, or their generation has ended.

    Args:
        uris: folders without a manifest.
        failed: URIs whose save failed.
        generation: the newest generation.
    """
    found = [item for uri in uris if (item := UnfinishedCheckpoint.from_uri(uri)) is not None]
    return [item for item in found if item.uri in failed or item.generation < generation]
