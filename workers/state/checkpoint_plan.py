"""Plan of a node's files of a checkpoint, without the bytes of tensors. `plan_shards` needs torch; the agent writes.

A file of torch's distributed format (DCP) is a sequence of containers, each as `torch.save` writes it for one tensor.
`plan_shards` makes the containers with torch, without data. The agent writes each container with the bytes of the
snapshot in between, from memory to storage. So no tensor is copied to disk before, and torch stays out of the agent.
"""

import json
import os
import zipfile
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from regroup.workers.contract.planned_shards import Container, PlannedFile, PlannedPiece, PlannedShards
from regroup.workers.state.buffer_layout import Entry, data_start
from regroup.workers.state.memory.checksum_regions import Region
from regroup.workers.state.shard_buffer import ShardBuffer
from regroup.workers.state.state_error import StateError
from regroup.workers.state.tensor_names import OwnCopy, may_differ
from regroup.workers.torch_internals.checkpoint_files import write_without_data

_SPREAD_BYTES = 256 << 10
"""Size of a tensor from which on ranks with equal copies share the work of writing."""
_MOST_WRITERS = 16
"""Ranks that share it. A node that restores reads from the files of all of them."""
_LOCAL_HEADER = 30
"""Bytes of a local header of a zip file before the name of the record."""


def plan_shards(args: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """Plan the files of the shards in `fds`. A zygote task.

    Args:
        args: `shards`, one `{"rank": r}` for every buffer; `differing`, the groups of which every rank has a copy of
            its own.
        fds: Snapshot buffers, then two empty memory files: for the containers, and for the plan (`PlannedShards`).

    Returns:
        `samples_digest` for the manifest, and `alike`: the `ShardBuffer.digests` of each rank.

    Raises:
        StateError: A buffer does not hold a complete snapshot of that rank. Its data is not read: the agent does that
            while the disk works.
    """
    *buffers, containers_fd, plan_fd = fds
    containers = _Containers(containers_fd)
    files: list[PlannedFile] = []
    digest, alike = "", list[Mapping[str, int]]()
    for shard, fd in zip(args["shards"], buffers, strict=True):
        rank = int(shard["rank"])
        buffer = _opened(fd, rank)
        header, facts = buffer.header(), dict(buffer.index().extra)
        digest = facts["samples_digest"]
        place = {"world_size": header.world_size, "layout_hash": header.layout_hash}
        text = containers.add_bytes(json.dumps({**facts, **place}).encode())
        start = data_start(header.index_bytes)
        entries = _entries_of(rank, buffer, frozenset(args["differing"]))
        files.append(PlannedFile(text, tuple(_piece(entry, start, containers) for entry in entries)))
        alike.append(buffer.digests())
    _write_all(plan_fd, PlannedShards(tuple(files), tuple(containers.found)).packed())
    return {"samples_digest": digest, "alike": alike}


def _opened(fd: int, rank: int) -> ShardBuffer:
    buffer = ShardBuffer(os.dup(fd))
    header = buffer.header()
    if header.rank != rank or not buffer.has_intact_index():
        raise StateError(
            f"the buffer of rank {rank} holds no complete snapshot ({header}); the checkpoint is not written"
        )
    return buffer


def _entries_of(rank: int, buffer: ShardBuffer, differing: Collection[str]) -> list[Entry]:
    """Return what this rank writes: first what other ranks have as well, so that readers find it in one place."""
    regions = [region for region in buffer.regions() if region.group is not None and region.group.id in differing]
    chosen = (_written(rank, entry, regions) for entry in buffer.index().tensors)
    return sorted((entry for entry in chosen if entry is not None), key=lambda entry: entry.copies == 1)


def _piece(entry: Entry, data_at: int, containers: "_Containers") -> PlannedPiece:
    number = containers.number_of(entry.dtype, entry.shape)
    place = data_at + entry.start, entry.nbytes
    return PlannedPiece(entry.name, entry.dtype, entry.global_shape, entry.offset, entry.shape, number, *place)


def _written(rank: int, entry: Entry, differing: Sequence[Region]) -> Entry | None:
    """Return what this rank writes of an entry: the tensor that all ranks share, its own copy of it, or nothing."""
    if not any(region.start <= entry.start < region.start + region.nbytes for region in differing):
        return entry if _is_ours(entry) else None
    if entry.copy == 0:
        return entry
    # A tensor of its own: the parts of one tensor must not overlap.
    own = OwnCopy(rank, entry.name, is_part=entry.shape != entry.global_shape)
    return replace(entry, name=str(own), global_shape=entry.shape, offset=(0,) * len(entry.shape))


def _is_ours(entry: Entry) -> bool:
    # One of the ranks with equal copies of a box writes it. The name decides which one, so that the work is spread.
    # The first rank writes small ones: each node needs all of them, and reads whole chunks of each file that has some.
    # If copies may differ, the first rank writes all of them, so that related values come from one rank.
    is_empty = 0 in entry.shape and 0 not in entry.global_shape
    is_of_first = may_differ(entry.name) or entry.nbytes < _SPREAD_BYTES
    writer = 0 if is_of_first else zlib.crc32(entry.name.encode()) % min(entry.copies, _MOST_WRITERS)
    return not is_empty and writer == entry.copy


class _Containers:
    """Bytes around the data of a tensor, by type and shape: tensors of the same form have equal ones."""

    def __init__(self, fd: int) -> None:
        self.found: list[Container] = []
        self._fd = fd
        self._numbers: dict[tuple[str, tuple[int, ...]], int] = {}

    def number_of(self, dtype: str, shape: tuple[int, ...]) -> int:
        """Return the number of the container of such tensors."""
        key = dtype, shape
        if key not in self._numbers:
            before, after = _container(torch.empty(shape, dtype=getattr(torch, dtype)))
            self._numbers[key] = len(self.found)
            self.found.append(Container(*self.add_bytes(before + after), len(before)))
        return self._numbers[key]

    def add_bytes(self, data: bytes) -> tuple[int, int]:
        """Add bytes to the file, and return their start and number."""
        start = os.lseek(self._fd, 0, os.SEEK_END)
        _write_all(self._fd, data)
        return start, len(data)


def _container(tensor: torch.Tensor) -> tuple[bytes, bytes]:
    """Return the bytes that `torch.save` writes before and after the data of a tensor."""
    fd = os.memfd_create("regroup-container", os.MFD_CLOEXEC)  # sparse: the data takes no memory
    try:
        with open(fd, "r+b", closefd=False) as file:
            write_without_data(tensor, file)
            (record,) = (each for each in zipfile.ZipFile(file).infolist() if each.filename.endswith("/data/0"))
            file.seek(record.header_offset)
            header = file.read(_LOCAL_HEADER)
            name, extra = int.from_bytes(header[26:28], "little"), int.from_bytes(header[28:30], "little")
            data_at = record.header_offset + _LOCAL_HEADER + name + extra
            file.seek(0)
            before = file.read(data_at)
            file.seek(data_at + tensor.untyped_storage().nbytes())
            return before, file.read()
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
