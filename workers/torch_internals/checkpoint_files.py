"""Files of torch: places of tensors in distributed checkpoints (DCP), and the readers of `torch.load`."""

from dataclasses import dataclass
from typing import Any, cast

import torch.serialization
from torch.distributed.checkpoint.filesystem import (
    _StorageInfo,  # pyright: ignore[reportPrivateUsage]
    _StoragePrefix,  # pyright: ignore[reportPrivateUsage]
)


@dataclass(frozen=True)
class FilePlace:
    """Bytes of one tensor in a file of a checkpoint."""

    path: str
    """Relative to the folder of the checkpoint."""
    start: int
    length: int


def to_storage(place: FilePlace) -> Any:
    """Return a place as torch's metadata has it."""
    return _StorageInfo(place.path, place.start, place.length)


def from_storage(info: Any) -> FilePlace:
    """Return the place that a writer of torch reported."""
    found = cast(_StorageInfo, info)
    return FilePlace(found.relative_path, found.offset, found.length)


def file_prefix(rank: int) -> Any:
    """Return the data of a save plan that makes a writer name its files after a rank."""
    return _StoragePrefix(f"__{rank}_")


READERS = ((torch.serialization, "_load"), (torch.serialization, "_legacy_load"))
"""Functions that read both formats of `torch.load`, with their owners. `torch.load` itself may have been imported."""
