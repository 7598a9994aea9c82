"""Snapshots and plans of a node's ranks without torch: containers are made of plain bytes."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from regroup.workers.contract.planned_shards import Container, PlannedFile, PlannedPiece, PlannedShards

BEFORE, AFTER = b"<before>", b"<after>"
FACTS = b'{"world_size": 2, "layout_hash": "h"}'
_DATA_AT = 128


@dataclass
class NodeShards:
    """Ranks with a tensor each of so many `sizes` bytes."""

    ranks: Sequence[int]
    sizes: Sequence[int]
    values: dict[tuple[int, str], bytes] = field(default_factory=dict[tuple[int, str], bytes])
    """Rank and name of each tensor → its bytes. A change takes effect in the next `buffers`."""

    def __post_init__(self) -> None:
        """Draw the values."""
        for rank in self.ranks:
            for number, size in enumerate(self.sizes):
                self.values[rank, f"w{number}"] = os.urandom(size)

    def containers(self) -> int:
        """Return a memory file with the container and the facts."""
        return _memory(BEFORE + AFTER + FACTS)

    def buffers(self) -> list[int]:
        """Return a memory file for each rank."""
        return [
            _memory(bytes(_DATA_AT) + b"".join(self.values[rank, f"w{n}"] for n in range(len(self.sizes))))
            for rank in self.ranks
        ]

    def plan(self) -> PlannedShards:
        """Return the plan of these ranks. Tensors are split by rows between two ranks."""
        container = Container(0, len(BEFORE) + len(AFTER), len(BEFORE))
        facts = (len(BEFORE) + len(AFTER), len(FACTS))
        return PlannedShards(tuple(PlannedFile(facts, tuple(self._pieces(rank))) for rank in self.ranks), (container,))

    def _pieces(self, rank: int) -> Sequence[PlannedPiece]:
        starts = [_DATA_AT + sum(self.sizes[:number]) for number in range(len(self.sizes))]
        return [
            PlannedPiece(f"w{number}", "uint8", (2 * size,), (rank * size,), (size,), 0, start, size)
            for number, (size, start) in enumerate(zip(self.sizes, starts, strict=True))
        ]


def _memory(data: bytes) -> int:
    fd = os.memfd_create("test", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    return fd
