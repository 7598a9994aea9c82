"""Copy tensors to snapshot buffers and back.

Canonical name and global offset identify a tensor's shard. A rank with the same place in the same layout restores from
its own shard. Other ranks receive their parts of several shards (`slice_source.py`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from regroup.workers.parallel.mesh import Alike, box_of, local, shard
from regroup.workers.state.buffer_layout import BufferLayout, Entry
from regroup.workers.state.memory.block_copy import Piece, copy_and_sum
from regroup.workers.state.memory.checksum_regions import Region
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
    """State in the shard of the rank that reads it."""

    def __init__(self, buffer: ShardBuffer) -> None:
        self._buffer, self._header, self._index = buffer, buffer.header(), buffer.index()
        self._entries = {entry.name: entry for entry in self._index.tensors}

    def tensors(self) -> Mapping[str, tuple[torch.dtype, tuple[int, ...]]]:
        """Return canonical name → type and global shape."""
        return {name: (_dtype(entry), entry.global_shape) for name, entry in self._entries.items()}

    def extra(self, rank: int, world_size: int) -> Mapping[str, Any]:
        """Return the small facts, without the random state for another rank."""
        facts = dict(self._index.extra)
        if (self._header.rank, self._header.world_size) != (rank, world_size):
            facts.pop("random", None)
        return facts

    def is_of_layout(self, world_size: int, layout_hash: str) -> bool:
        """Return True if this number of ranks with this layout wrote the state."""
        return (self._header.world_size, self._header.layout_hash) == (world_size, layout_hash)

    def read(self, targets: Mapping[str, Tensor]) -> None:
        """Copy the local part of every target.

        Raises:
            StateError: The shard has another part of a tensor.
        """
        for name, target in targets.items():
            entry, box = self._entries[name], box_of(target)
            if (entry.offset, entry.shape) != (box.offset, box.shape):
                raise StateError(
                    f"the shard of this rank has values from {entry.offset} of shape {entry.shape} of {name!r}, but "
                    f"the model needs values from {box.offset} of shape {box.shape}"
                )
            local(target).copy_(tensor_in(self._buffer, entry))


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
