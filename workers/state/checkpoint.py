"""Checkpoints in torch's distributed format (DCP), written from snapshot buffers without a process group.

`save_shards` runs on every node over the buffers of its ranks. `write_metadata` runs once with their results. Then
`torch.distributed.checkpoint.load` can load the directory on any layout, and `CheckpointSource` does so for a rank.
Each rank also writes `facts-<rank>.json`: position in the data, optimizer settings, random state.
"""

import base64
import json
import os
import warnings
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult

from regroup.workers.state.buffer_layout import Entry
from regroup.workers.state.checksum_regions import Region
from regroup.workers.state.shard_buffer import ShardBuffer
from regroup.workers.state.snapshot import tensor_in
from regroup.workers.state.state_error import StateError
from regroup.workers.state.tensor_names import OwnCopy, may_differ
from regroup.workers.torch_internals.checkpoint_files import FilePlace, file_prefix, from_storage, to_storage

_Row = tuple[str, str, Sequence[int], Sequence[int], Sequence[int], str, int, int]
"""Shard in a file: name, type, global shape, offset and shape of the box, file, first byte and length."""


def save_shards(args: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """Write the shards in `fds` into a local directory. A zygote task.

    Args:
        args: `directory`; `shards`, one `{"rank": r}` for every descriptor; `differing`, the groups of which every rank
            has a copy of its own.
        fds: Snapshot buffers; they stay open.

    Returns:
        `results` for `write_metadata`, `samples_digest` for the manifest, and `alike`: the `ShardBuffer.digests` of
        each rank.

    Raises:
        StateError: A buffer does not hold a complete snapshot of that rank.
    """
    directory = Path(args["directory"])
    directory.mkdir(parents=True, exist_ok=True)
    written: list[_Row] = []
    digest, alike = "", list[Mapping[str, int]]()
    for shard, fd in zip(args["shards"], fds, strict=True):
        rank = int(shard["rank"])
        buffer = _verified(fd, rank)
        facts = dict(buffer.index().extra)
        digest = facts["samples_digest"]
        place = {"world_size": buffer.header().world_size, "layout_hash": buffer.header().layout_hash}
        (directory / facts_name(rank)).write_text(json.dumps({**facts, **place}))
        written += _write_tensors(directory, rank, buffer, frozenset(args["differing"]))
        alike.append(buffer.digests())
    text = zlib.compress(json.dumps(written, separators=(",", ":")).encode())
    return {"results": base64.b64encode(text).decode(), "samples_digest": digest, "alike": alike}


def write_metadata(args: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """Write `.metadata` from the results of `save_shards` of every node. A zygote task.

    Args:
        args: `directory`.
        fds: File with the JSON list of the results of all nodes, which may be too large for a packet.

    Raises:
        StateError: The shards do not cover a tensor.
    """
    directory = Path(args["directory"])
    directory.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, TensorStorageMetadata] = {}
    results: list[WriteResult] = []
    with open(fds[0], closefd=False, encoding="utf-8") as file:
        file.seek(0)
        parts = cast(list[dict[str, str]], json.load(file))
    for part in parts:
        rows = cast(list[_Row], json.loads(zlib.decompress(base64.b64decode(part["results"]))))
        for name, dtype, whole, offset, shape, path, start, length in rows:
            properties = TensorProperties(dtype=getattr(torch, dtype))
            tensor = tensors.setdefault(name, TensorStorageMetadata(properties, torch.Size(whole), []))
            tensor.chunks.append(ChunkStorageMetadata(torch.Size(offset), torch.Size(shape)))
            index = MetadataIndex(name, torch.Size(offset))
            results.append(WriteResult(index, length, to_storage(FilePlace(path, start, length))))
    for name, tensor in tensors.items():
        covered = sum(chunk.sizes.numel() for chunk in tensor.chunks)
        if covered != tensor.size.numel():
            raise StateError(f"the shards cover {covered} of {tensor.size.numel()} values of {name!r}")
        tensor.chunks.sort(key=lambda chunk: tuple(chunk.offsets))
    FileSystemWriter(directory).finish(Metadata(cast(Any, tensors)), [results])
    return {}


def facts_name(rank: int) -> str:
    """Return the name of the file with the small facts of a rank."""
    return f"facts-{rank}.json"


class CheckpointSource:
    """Verified checkpoint directory on this node, as a source of state."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def tensors(self) -> Mapping[str, tuple[torch.dtype, tuple[int, ...]]]:
        """Return canonical name → type and global shape."""
        found = cast(Mapping[str, TensorStorageMetadata], self._metadata.state_dict_metadata)
        return {name: (tensor.properties.dtype, tuple(tensor.size)) for name, tensor in found.items()}

    def extra(self, rank: int, world_size: int) -> Mapping[str, Any]:
        """Return the small facts of the same rank, or those of rank 0 without its random state."""
        facts = self._facts(0)
        if facts["world_size"] == world_size:
            return self._facts(rank)
        facts.pop("random", None)
        return facts

    def is_of_layout(self, world_size: int, layout_hash: str) -> bool:
        """Return True if this number of ranks with this layout wrote the state."""
        facts = self._facts(0)
        return (facts["world_size"], facts["layout_hash"]) == (world_size, layout_hash)

    def read(self, targets: Mapping[str, Tensor]) -> None:
        """Fill the local part of every target. Each rank reads its own part."""
        detached = {name: target.detach() for name, target in targets.items()}
        with warnings.catch_warnings():
            # torch warns even though `no_dist` was requested.
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            dcp.load(detached, storage_reader=FileSystemReader(self._directory), no_dist=True)

    def _facts(self, rank: int) -> dict[str, Any]:
        return json.loads((self._directory / facts_name(rank)).read_text())

    @cached_property
    def _metadata(self) -> Metadata:
        return FileSystemReader(self._directory).read_metadata()


class _BufferPlanner(dcp.DefaultSavePlanner):
    """Planner that finds the bytes of a write item in a snapshot buffer."""

    def __init__(self, buffer: ShardBuffer, entries: Mapping[str, Entry]) -> None:
        super().__init__()
        self._buffer = buffer
        self._entries = entries

    def resolve_data(self, write_item: WriteItem) -> Tensor:
        """Return a view of the shard, so that nothing is copied before the write."""
        return tensor_in(self._buffer, self._entries[write_item.index.fqn])


def _verified(fd: int, rank: int) -> ShardBuffer:
    buffer = ShardBuffer(os.dup(fd))
    header = buffer.header()
    if header.rank != rank or not buffer.verify():
        raise StateError(
            f"the buffer of rank {rank} holds no complete snapshot ({header}); the checkpoint is not written"
        )
    return buffer


def _write_tensors(directory: Path, rank: int, buffer: ShardBuffer, differing: Collection[str]) -> list[_Row]:
    regions = [region for region in buffer.regions() if region.group is not None and region.group.id in differing]
    chosen = (_written(rank, entry, regions) for entry in buffer.index().tensors)
    entries = {entry.name: entry for entry in chosen if entry is not None}
    plan = SavePlan([_item(entry) for entry in entries.values()], storage_data=file_prefix(rank))
    results = FileSystemWriter(directory).write_data(plan, _BufferPlanner(buffer, entries)).value()
    rows: list[_Row] = []
    for result in results:
        entry, place = entries[result.index.fqn], from_storage(result.storage_data)
        rows.append(
            (
                entry.name,
                entry.dtype,
                entry.global_shape,
                entry.offset,
                entry.shape,
                place.path,
                place.start,
                place.length,
            )
        )
    return rows


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
    # If copies may differ, the first rank writes all of them, so that related values come from one rank.
    is_empty = 0 in entry.shape and 0 not in entry.global_shape
    writer = 0 if may_differ(entry.name) else zlib.crc32(entry.name.encode()) % entry.copies
    return not is_empty and writer == entry.copy


def _item(entry: Entry) -> WriteItem:
    offset = torch.Size(entry.offset)
    chunk = ChunkStorageMetadata(offset, torch.Size(entry.shape))
    properties = TensorProperties(dtype=getattr(torch, entry.dtype))
    return WriteItem(
        MetadataIndex(entry.name, offset),
        WriteItemType.SHARD,
        tensor_data=TensorWriteData(chunk, properties, torch.Size(entry.global_shape)),
    )
