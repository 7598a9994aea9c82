"""Copy tensors to snapshot buffers and back.

Canonical name and global offset identify a tensor's shard. So any set of shards that covers a state can restore it.
With the same layout every box meets exactly one shard.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from regroup.workers.parallel.mesh import Alike, Box, box_of, local, shard
from regroup.workers.state.buffer_layout import BufferLayout, Entry
from regroup.workers.state.checksum_regions import Region
from regroup.workers.state.memory.block_copy import Piece, copy_and_sum
from regroup.workers.state.page_locks import PageLocks
from regroup.workers.state.replica_check import ReplicaComparison
from regroup.workers.state.shard_buffer import ShardBuffer
from regroup.workers.state.state_error import StateError
from regroup.workers.state.tensor_names import parse_own


class Source(Protocol):
    """Saved state from which parts of tensors can be read: shard buffers in memory, or a checkpoint."""

    def tensors(self) -> Mapping[str, tuple[torch.dtype, tuple[int, ...]]]:
        """Return canonical name → type and global shape."""
        ...

    def extra(self, rank: int, world_size: int) -> Mapping[str, Any]:
        """Return the small facts: those of the same rank if the world size is the same."""
        ...

    def is_of_layout(self, world_size: int, layout_hash: str) -> bool:
        """Return True if this number of ranks with this layout wrote the state."""
        ...

    def read(self, targets: Mapping[str, Tensor]) -> None:
        """Fill the local part of every target."""
        ...


class Copier:
    """Copies of a state into a buffer: synchronous on the CPU, on a side stream on CUDA.

    Call `finish` before the next update.
    """

    def __init__(self, device: torch.device, threads: int = 1) -> None:
        """Args:
        device: device of the state.
        threads: most threads of a copy on the CPU.
        """
        self.regions: list[Region] | None = None
        """Regions of the last copy with their checksums, if it was on the CPU."""
        self._threads = threads
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._locks = PageLocks(device) if device.type == "cuda" else None
        self._plan: BufferLayout | None = None
        self._sources: list[Tensor] = []
        """Tensors of the running copy, kept alive until it has finished."""
        self._targets: dict[int, tuple[BufferLayout, tuple[int, int], list[Tensor]]] = {}
        """Buffer → its memory for each tensor; rebuilt only if the data moved."""
        self._shape: tuple[tuple[str, torch.Size, torch.dtype], ...] = ()

    @property
    def is_async(self) -> bool:
        """True if a copy runs while training continues; otherwise it is complete when `copy` returns."""
        return self._stream is not None

    def plan(
        self, tensors: Mapping[str, Tensor], alike: Alike | None = None, compared: ReplicaComparison | None = None
    ) -> BufferLayout:
        """Return the layout of these tensors, which is rebuilt only if names, shapes or types changed."""
        shape = tuple((name, tensor.shape, tensor.dtype) for name, tensor in tensors.items())
        if self._plan is None or shape != self._shape:
            self._plan, self._shape = plan_of(tensors, alike, compared), shape
        return self._plan

    @property
    def last_plan(self) -> BufferLayout:
        """Layout of the last call of `plan`."""
        assert self._plan is not None, "nothing was copied yet"
        return self._plan

    def copy(self, buffer: ShardBuffer, plan: BufferLayout, tensors: Mapping[str, Tensor]) -> None:
        """Start copying into a buffer for which `begin` was called with this layout."""
        targets = self._memory_of(buffer, plan)
        if self._stream is None:
            self.regions = self._copy_on_cpu(buffer, plan, targets, list(tensors.values()))
            return
        self._sources = sources = [local(tensor) for tensor in tensors.values()]
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for target, value in zip(targets, sources, strict=True):
                target.copy_(value, non_blocking=True)

    def _copy_on_cpu(
        self, buffer: ShardBuffer, plan: BufferLayout, targets: Sequence[Tensor], tensors: Sequence[Tensor]
    ) -> list[Region]:
        """Copy block by block. A dispatched copy of many small tensors would take three times as long."""
        pieces: list[Piece] = []
        for target, entry, tensor in zip(targets, plan.entries, tensors, strict=True):
            source = shard(tensor)
            if not (source.is_contiguous() and source.dtype is target.dtype and source.nbytes == entry.nbytes):
                target.copy_(source.detach())
            elif entry.nbytes:
                pieces.append(Piece(entry.start, source.data_ptr(), entry.nbytes))
        data, address = buffer.data()
        with data:
            return copy_and_sum(data, address, sorted(pieces), plan.regions, self._threads)

    def _memory_of(self, buffer: ShardBuffer, plan: BufferLayout) -> list[Tensor]:
        place = buffer.data_place()
        target = self._targets.get(id(buffer))
        if target is None or target[0] is not plan or target[1] != place:
            views = zip(buffer.views(plan.entries), plan.entries, strict=True)
            target = self._targets[id(buffer)] = (plan, place, [_over(view, entry) for view, entry in views])
            if self._locks is not None:
                self._locks.request(id(buffer), *buffer.memory_place(), memory=target)
        return target[2]

    def finish(self) -> None:
        """Wait until the last copy is complete."""
        if self._stream is not None:
            self._stream.synchronize()
            self._sources = []


class ShardSource:
    """State in any set of complete shard buffers of one step."""

    def __init__(self, buffers: Sequence[ShardBuffer]) -> None:
        self._buffers = [(buffer, buffer.header(), buffer.index()) for buffer in buffers]
        self._holders: dict[str, list[tuple[ShardBuffer, Entry]]] = {}
        for buffer, _, index in self._buffers:
            for entry in index.tensors:
                self._holders.setdefault(entry.name, []).append((buffer, entry))

    def tensors(self) -> Mapping[str, tuple[torch.dtype, tuple[int, ...]]]:
        """Return canonical name → type and global shape."""
        return {name: (_dtype(held[0][1]), held[0][1].global_shape) for name, held in self._holders.items()}

    def extra(self, rank: int, world_size: int) -> Mapping[str, Any]:
        """Return the small facts of the same rank, or those of any rank without its random state."""
        for _, header, index in self._buffers:
            if (header.rank, header.world_size) == (rank, world_size):
                return index.extra
        facts = dict(self._buffers[0][2].extra)
        facts.pop("random", None)
        return facts

    def is_of_layout(self, world_size: int, layout_hash: str) -> bool:
        """Return True if this number of ranks with this layout wrote the state."""
        return all(
            (header.world_size, header.layout_hash) == (world_size, layout_hash) for _, header, _ in self._buffers
        )

    def read(self, targets: Mapping[str, Tensor]) -> None:
        """Assemble the local part of every target from the shards that overlap it."""
        for name, target in targets.items():
            assemble(name, box_of(target), local(target), self._holders[name])


def assemble(name: str, box: Box, target: Tensor, holders: Iterable[tuple[ShardBuffer, Entry]]) -> None:
    """Fill `target`, which is the part `box` of a global tensor, from shards.

    Raises:
        StateError: The shards do not cover all of it.
    """
    seen: set[tuple[tuple[int, int], ...]] = set()
    covered = 0
    for buffer, entry in holders:
        common = intersect(box.offset, box.shape, entry.offset, entry.shape)
        if common is None or common in seen:
            continue  # a replica of a part that is already filled
        seen.add(common)
        into = tuple(slice(start - at, stop - at) for (start, stop), at in zip(common, box.offset, strict=True))
        out_of = tuple(slice(start - at, stop - at) for (start, stop), at in zip(common, entry.offset, strict=True))
        part = tensor_in(buffer, entry)[out_of]
        target[into].copy_(part)
        covered += part.numel()
    if covered != target.numel():
        raise StateError(f"the available shards cover {covered} of {target.numel()} values of {name!r} on this rank")


def intersect(
    offset: Sequence[int], shape: Sequence[int], other_offset: Sequence[int], other_shape: Sequence[int]
) -> tuple[tuple[int, int], ...] | None:
    """Return the intersection of two boxes as (start, stop) per dimension, or None."""
    common = tuple(
        (max(a, b), min(a + m, b + n)) for a, m, b, n in zip(offset, shape, other_offset, other_shape, strict=True)
    )
    return common if all(start < stop for start, stop in common) else None


def plan_of(
    tensors: Mapping[str, Tensor], alike: Alike | None = None, compared: ReplicaComparison | None = None
) -> BufferLayout:
    """Return the layout with one entry for each tensor: the box that this rank holds.

    Args:
        tensors: Tensors by canonical name.
        alike: Ranks with equal copies of unsharded tensors.
        compared: Selection of the tensors that are compared with other ranks.
    """
    entries: list[Entry] = []
    for name, tensor in tensors.items():
        box, part = box_of(tensor, alike if parse_own(name) is None else Alike(0, 1)), local(tensor)
        entries.append(
            Entry(
                name,
                str(tensor.dtype).removeprefix("torch."),
                box.global_shape,
                box.offset,
                box.shape,
                part.numel() * part.element_size(),
                copy=box.copy,
                copies=box.copies,
            )
        )
    return BufferLayout(entries, compared.groups(tensors) if compared is not None else {})


def tensor_in(buffer: ShardBuffer, entry: Entry) -> Tensor:
    """Return the shard of an entry as a tensor over the memory of the buffer."""
    return _over(buffer.view(entry), entry)


def _over(view: memoryview, entry: Entry) -> Tensor:
    if entry.nbytes == 0:
        return torch.empty(entry.shape, dtype=_dtype(entry))
    return torch.frombuffer(view, dtype=_dtype(entry)).view(entry.shape)


def _dtype(entry: Entry) -> torch.dtype:
    return cast(torch.dtype, getattr(torch, entry.dtype))
