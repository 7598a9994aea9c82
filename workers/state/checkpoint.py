"""Checkpoints in torch's distributed format (DCP), written from snapshot buffers without a process group.

`plan_shards` (checkpoint_plan.py) runs on every node over the buffers of its ranks, and the agents write the files.
`write_metadata` runs once with the pieces of all nodes. Then `torch.distributed.checkpoint.load` can load the directory
on any layout, and `CheckpointSource` does so for an export. Ranks restore without it. Each rank also has
`facts-<rank>.json`: position in the data, optimizer settings, random state.
"""

import json
import warnings
from collections.abc import Mapping
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
from torch.distributed.checkpoint.storage import WriteResult

from regroup.workers.contract.checkpoint_manifest import facts_name, unpack_pieces
from regroup.workers.state.state_error import StateError
from regroup.workers.torch_internals.checkpoint_files import FilePlace, to_storage


def write_metadata(args: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """Write `.metadata` from the pieces of every node. A zygote task.

    Args:
        args: `directory`.
        fds: File with the packed `Pieces` of the checkpoint.

    Raises:
        StateError: The pieces do not cover a tensor.
    """
    directory = Path(args["directory"])
    directory.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, TensorStorageMetadata] = {}
    results: list[WriteResult] = []
    with open(fds[0], "rb", closefd=False) as file:
        file.seek(0)
        pieces = unpack_pieces(file.read()).pieces
    for each in pieces:
        properties = TensorProperties(dtype=getattr(torch, each.dtype))
        tensor = tensors.setdefault(each.name, TensorStorageMetadata(properties, torch.Size(each.global_shape), []))
        tensor.chunks.append(ChunkStorageMetadata(torch.Size(each.offset), torch.Size(each.shape)))
        index = MetadataIndex(each.name, torch.Size(each.offset))
        place = to_storage(FilePlace(each.file, each.start, each.length))
        results.append(WriteResult(index, each.length, place))
    for name, tensor in tensors.items():
        covered = sum(chunk.sizes.numel() for chunk in tensor.chunks)
        if covered != tensor.size.numel():
            raise StateError(f"the shards cover {covered} of {tensor.size.numel()} values of {name!r}")
        tensor.chunks.sort(key=lambda chunk: tuple(chunk.offsets))
    FileSystemWriter(directory).finish(Metadata(cast(Any, tensors)), [results])
    return {}


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
