"""States that are split over the ranks of a mesh, held by nodes and needed by other ranks, for tests of the planner."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regroup.workers.state.slices.box_table import BoxTable, TensorBox
from regroup.workers.state.slices.boxes import Box, Region
from regroup.workers.state.slices.held_state import HeldState
from regroup.workers.state.slices.transfer_plan import TransferPlan

Holder = tuple[int, int]
"""Node, and rank that wrote the shard."""


@dataclass(frozen=True)
class Mesh:
    """Ranks that split every tensor."""

    axes: tuple[tuple[int | None, int], ...]
    """Dimension that is split, and degree, for each axis; None: copies."""
    ranks_per_node: int

    @property
    def world_size(self) -> int:
        return math.prod(degree for _, degree in self.axes)

    def box(self, rank: int, shape: Sequence[int]) -> Box:
        """Return the part of a tensor that a rank has, as torch splits it."""
        offset, extent = [0] * len(shape), list(shape)
        for (dim, degree), place in zip(self.axes, self.place(rank), strict=True):
            if dim is not None and dim < len(shape):
                rows = -(-extent[dim] // degree)
                first = min(extent[dim], place * rows)
                offset[dim] += first
                extent[dim] = min(rows, extent[dim] - first)
        return Box(tuple(offset), tuple(extent))

    def place(self, rank: int) -> list[int]:
        """Return the position of a rank on each axis."""
        found: list[int] = []
        for _, degree in reversed(self.axes):
            rank, position = divmod(rank, degree)
            found.insert(0, position)
        return found

    def ranks_on(self, node: int) -> range:
        """Return the ranks of a node."""
        return range(self.world_size)[node * self.ranks_per_node : (node + 1) * self.ranks_per_node]

    @property
    def nodes(self) -> range:
        return range(-(-self.world_size // self.ranks_per_node))


def table_of(tensors: Mapping[str, np.ndarray[Any, Any]], mesh: Mesh, rank: int, gap: int) -> tuple[BoxTable, int]:
    """Return the table of a rank's parts, `gap` bytes apart, and the size of the file."""
    rows: list[tuple[str, TensorBox, int]] = []
    at = gap
    for name, tensor in tensors.items():
        box = TensorBox(str(tensor.dtype), tensor.itemsize, tensor.shape, mesh.box(rank, tensor.shape))
        rows.append((name, box, at))
        at += box.size_bytes + gap
    return BoxTable.of(rows), at


def part_of(tensor: np.ndarray[Any, Any], box: Box) -> np.ndarray[Any, Any]:
    """Return the values of a box."""
    return tensor[(*(slice(at, at + extent) for at, extent in zip(box.offset, box.shape, strict=True)), ...)]


@dataclass
class SavedMesh:
    """The files of the ranks that wrote a state."""

    tensors: Mapping[str, np.ndarray[Any, Any]]
    mesh: Mesh
    mirrors: Mapping[int, int] = field(default_factory=dict[int, int])
    """Rank → another node that has its shard too."""

    def __post_init__(self) -> None:
        self.files: dict[Holder, bytes] = {}
        tables: list[tuple[Holder, BoxTable]] = []
        for node in self.mesh.nodes:
            for rank in self.mesh.ranks_on(node):
                table, size_bytes = table_of(self.tensors, self.mesh, rank, gap=8)
                file = bytearray(size_bytes)
                for name, box, start in table.rows():
                    file[start : start + box.size_bytes] = part_of(self.tensors[name], box.box).tobytes()
                for place in {node, self.mirrors.get(rank, node)}:
                    self.files[place, rank] = bytes(file)
                    tables.append(((place, rank), table))
        self.held = HeldState(tables)

    def near(self, node: int) -> list[Holder]:
        """Return the holders on a node."""
        return [holder for holder in self.files if holder[0] == node]

    def minimum_bytes(self, mesh: Mesh, node: int) -> int:
        """Count the bytes that the ranks of a node need and that it does not hold, value by value."""
        count = 0
        for tensor in self.tensors.values():
            needed, held = (np.zeros(tensor.shape, bool) for _ in range(2))
            for rank in mesh.ranks_on(node):
                part_of(needed, mesh.box(rank, tensor.shape))[...] = True
            for _, rank in self.near(node):
                part_of(held, self.mesh.box(rank, tensor.shape))[...] = True
            count += int((needed & ~held).sum()) * tensor.itemsize
        return count

    def executed(self, plan: TransferPlan, sizes: Mapping[int, int]) -> dict[int, bytearray]:
        """Return rank → its buffer after the transfers of a plan."""
        buffers = {rank: bytearray(size) for rank, size in sizes.items()}
        for each in itertools.chain(plan.fetches(), plan.copies()):
            move(self.files[each.holder], each.source, buffers[each.rank], each.target)  # type: ignore[index]
        for passed in plan.passes():
            move(buffers[passed.source_rank], passed.source, buffers[passed.rank], passed.target)
        return buffers


def runs(region: Region) -> Iterator[int]:
    """Return the position of every byte of a region, in order."""
    for place in itertools.product(*(range(count) for count in region.counts)):
        first = region.offset + sum(at * stride for at, stride in zip(place, region.strides_bytes, strict=True))
        yield from range(first, first + region.run_bytes)


def move(source: bytes | bytearray, out_of: Region, target: bytearray, into: Region) -> None:
    """Copy a region byte by byte."""
    for read, written in zip(runs(out_of), runs(into), strict=True):
        target[written] = source[read]
