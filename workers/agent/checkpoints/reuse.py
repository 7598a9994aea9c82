"""Find the pieces of a checkpoint that an older one already has, so that they are not written again."""

import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from regroup.workers.agent.checkpoints.composition import read_exactly
from regroup.workers.contract.checkpoint_manifest import Piece
from regroup.workers.contract.planned_shards import PlannedPiece
from regroup.workers.storage.parallel_write import STREAMS

HEAD_BYTES = 64 * 1024
MIN_SHARE = 0.5
"""Smallest share of a file that must be unchanged. Otherwise a few pieces would keep all of an old file in storage."""
_BLOCK_BYTES = 4 * 1024 * 1024
_DIGEST_CHARACTERS = 32
BoxKey = tuple[object, ...]
"""Name, type and box of a piece."""
Memory = Mapping[PlannedPiece, int]
"""Piece → descriptor of the memory file that holds it."""


def heads_of(memory: Memory) -> dict[PlannedPiece, int]:
    """Return the CRC-32 of the first bytes of each piece. It shows most changes."""
    block = memoryview(bytearray(HEAD_BYTES))
    found: dict[PlannedPiece, int] = {}
    for piece, fd in memory.items():
        view = block[: min(HEAD_BYTES, piece.nbytes)]
        read_exactly(fd, piece.start, view)
        found[piece] = zlib.crc32(view)
    return found


def digest_of(fd: int, start: int, nbytes: int) -> str:
    """Return the digest of bytes in a memory file.

    Raises:
        StorageError: The file is shorter.
    """
    block = memoryview(bytearray(min(nbytes, _BLOCK_BYTES)))
    found = hashlib.sha256()
    for at in range(0, nbytes, _BLOCK_BYTES):
        view = block[: min(_BLOCK_BYTES, nbytes - at)]
        read_exactly(fd, start + at, view)
        found.update(view)
    return found.hexdigest()[:_DIGEST_CHARACTERS]


def find_unchanged(
    memory: Memory, heads: Mapping[PlannedPiece, int], former: Iterable[Piece]
) -> dict[PlannedPiece, Piece]:
    """Return the pieces whose values are those of a former piece.

    Args:
        memory: Pieces of this node.
        heads: Their `heads_of`.
        former: Pieces of the former checkpoint.
    """
    before_by_box = {piece.box: piece for piece in former}
    candidates: list[tuple[PlannedPiece, int, Piece]] = []
    for piece, fd in memory.items():
        before = before_by_box.get(box_of(piece))
        if before is not None and before.digest and (before.nbytes, before.head) == (piece.nbytes, heads[piece]):
            candidates.append((piece, fd, before))
    if not candidates:
        return {}
    with ThreadPoolExecutor(STREAMS, "checkpoint-digest") as pool:
        digests = pool.map(_digest_in_memory, candidates)
        return {
            piece: before
            for (piece, _, before), digest in zip(candidates, digests, strict=True)
            if digest == before.digest
        }


def find_changed(heads: Mapping[PlannedPiece, int], former: Iterable[Piece]) -> frozenset[BoxKey]:
    """Return the pieces that a former checkpoint has with other first bytes: they change from save to save. Pure."""
    before = {piece.box: piece.head for piece in former}
    return frozenset(box for piece, head in heads.items() if before.get(box := box_of(piece), head) != head)


def box_of(piece: PlannedPiece) -> BoxKey:
    """Return what identifies a piece in every checkpoint, as `Piece.box`."""
    return piece.name, piece.dtype, piece.global_shape, piece.offset, piece.shape


def _digest_in_memory(candidate: tuple[PlannedPiece, int, Piece]) -> str:
    piece, fd, _ = candidate
    return digest_of(fd, piece.start, piece.nbytes)


def worth_reusing(unchanged: Mapping[PlannedPiece, Piece], size_of: Callable[[str], int]) -> dict[PlannedPiece, Piece]:
    """Return those unchanged pieces that are a large part of the file that holds them. Pure.

    Args:
        unchanged: Piece → the same piece in an older file.
        size_of: Function that returns the size of such a file.
    """
    used: dict[str, int] = {}
    for before in unchanged.values():
        used[before.file] = used.get(before.file, 0) + before.length
    kept = {file for file, nbytes in used.items() if nbytes >= MIN_SHARE * size_of(file)}
    return {piece: before for piece, before in unchanged.items() if before.file in kept}
