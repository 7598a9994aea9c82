"""Files of torch: places of tensors in distributed checkpoints (DCP), and the readers of `torch.load`."""

from dataclasses import dataclass
from typing import IO, Any

import torch
import torch.serialization
from torch.distributed.checkpoint.filesystem import (
    _StorageInfo,  # pyright: ignore[reportPrivateUsage]
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


def write_without_data(tensor: torch.Tensor, file: IO[bytes]) -> None:
    """Write to a new file what `torch.save` writes to it for a tensor, with a hole in place of its values.

    torch DCP also passes an open file. A path would put another name into the archive.
    """
    with torch.serialization.skip_data():
        torch.save(tensor, file)


READERS = ((torch.serialization, "_load"), (torch.serialization, "_legacy_load"))
"""Functions that read both formats of `torch.load`, with their owners. `torch.load` itself may have been imported."""
