"""A saved state of which a rank receives only its own parts, for example after a change of the layout."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor

from regroup.workers.parallel.mesh import box_of, local
from regroup.workers.state.buffer_layout import HEADER_BYTES, aligned
from regroup.workers.state.slices.box_table import BoxTable, TensorBox
from regroup.workers.state.slices.boxes import Box


class SliceSource:
    """State that is held elsewhere, in parts of any form."""

    def __init__(self, catalog: Mapping[str, Any], receive: Callable[[BoxTable, int], memoryview]) -> None:
        """Initialize from the catalog of the agent.

        Args:
            catalog: `tensors`, `facts`, `world_size` and `layout_hash` of the state (`SavedState.catalog`).
            receive: returns a memory of the given size, with the boxes of a table at its positions.
        """
        self._catalog, self._receive = catalog, receive
        self._tensors = {name: (_dtype(dtype), tuple(shape)) for name, (dtype, shape) in catalog["tensors"].items()}

    def tensors(self) -> Mapping[str, tuple[torch.dtype, tuple[int, ...]]]:
        """Return canonical name → type and global shape."""
        return self._tensors

    def extra(self, rank: int, world_size: int) -> Mapping[str, Any]:
        """Return the small facts. The agent chose them for this rank."""
        return self._catalog["facts"]

    def is_of_layout(self, world_size: int, layout_hash: str) -> bool:
        """Return True if this number of ranks with this layout wrote the state."""
        return (self._catalog["world_size"], self._catalog["layout_hash"]) == (world_size, layout_hash)

    def read(self, targets: Mapping[str, Tensor]) -> None:
        """Receive the local part of every target, all of them at once, and copy it to the target."""
        rows: list[tuple[str, TensorBox, int]] = []
        at = HEADER_BYTES  # the header stays blank: the memory holds no snapshot
        for name, target in targets.items():
            dtype, shape = self._tensors[name]
            box = box_of(target)
            part = TensorBox(str(dtype).removeprefix("torch."), dtype.itemsize, shape, Box(box.offset, box.shape))
            rows.append((name, part, at))
            at = aligned(at + part.size_bytes)
        memory = self._receive(BoxTable.of(rows), at)
        for name, part, start in rows:
            if part.box.size:
                received = torch.frombuffer(memory, dtype=_dtype(part.dtype), count=part.box.size, offset=start)
                local(targets[name]).copy_(received.view(part.box.shape))


def _dtype(name: str) -> torch.dtype:
    return cast(torch.dtype, getattr(torch, name))
