"""A checkpoint in durable storage as a saved state, from which the ranks of a node read their parts."""

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from regroup.workers.agent.checkpoints.chunk_reader import ChunkReader
from regroup.workers.agent.checkpoints.stored_files import read_manifest, read_pieces
from regroup.workers.agent.slices.saved_state import SavedState
from regroup.workers.contract.checkpoint_manifest import Piece, facts_name, shard_name
from regroup.workers.state.slices.held_state import HeldBox, HeldState
from regroup.workers.storage import fsspec_storage
from regroup.workers.storage.fsspec_storage import StorageError

_GAP_BYTES = 64 << 10
"""Bytes between two parts of a file that are read with them."""


def open_checkpoint(
    uri: str, ranks: Sequence[int], world_size: int, count: Callable[[int], None] = lambda _: None
) -> SavedState:
    """Return the state of a checkpoint. Only the list of its pieces and small facts are read. Blocking.

    The files of tensors must exist with their size. Their content is verified when it is read.

    Args:
        uri: Folder of the checkpoint.
        ranks: Ranks that restore from it on this node.
        world_size: Number of ranks that restore from it.
        count: Receives the number of bytes of each part that was read. Threads call it.

    Raises:
        StorageError: The checkpoint is not complete, or damaged.
        StorageUnavailable: Storage did not answer. The checkpoint may be intact.
    """
    with fsspec_storage.answering(uri):
        manifest = read_manifest(uri)
        pieces = read_pieces(uri, manifest)
        first = _facts(uri, manifest, 0)
        needed = {0, *ranks} if first["world_size"] == world_size else {0}
        facts = {rank: _facts(uri, manifest, rank) if rank else first for rank in sorted(needed)}
        files = [{"name": name, "size_bytes": file.size_bytes} for name, file in pieces.files.items()]
        if missing := fsspec_storage.missing_files(uri, files):
            place = fsspec_storage.join(uri, missing[0])
            raise StorageError(f"{place} is named in the manifest but missing, or it is damaged: its size is wrong")
    held = HeldState.of(_held(piece) for piece in pieces.pieces)
    reader = ChunkReader(uri, pieces.files, count)
    if first["world_size"] == world_size:  # most likely each rank needs what it wrote
        own = {shard_name(rank) for rank in ranks}
        parts = [each for each in pieces.pieces if posixpath.basename(each.file) in own]
        reader.read_ahead(_joined([(each.file, each.start, each.length) for each in parts]))
    return SavedState(held, first["world_size"], first["layout_hash"], facts, reader, {})


def _facts(uri: str, manifest: Mapping[str, Any], rank: int) -> Mapping[str, Any]:
    return json.loads(fsspec_storage.read_verified(uri, facts_name(rank), manifest["files"]))


def _held(piece: Piece) -> HeldBox:
    form = piece.name, piece.dtype, _item_bytes(piece.dtype), piece.global_shape
    return HeldBox(*form, piece.offset, piece.shape, piece.file, piece.data_start)


def _joined(parts: Iterable[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Return parts of files in order, with those that follow each other as one."""
    found: list[tuple[str, int, int]] = []
    for name, start, size_bytes in sorted(parts):
        if found and found[-1][0] == name and found[-1][1] + found[-1][2] >= start - _GAP_BYTES:
            first = found.pop()[1]
            size_bytes += start - first
            start = first
        found.append((name, start, size_bytes))
    return found


def _item_bytes(dtype: str) -> int:
    """Return the bytes of one value of a type, whose name contains its bits: `float32`, `float8_e4m3fn`, `bool`."""
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits else 1
