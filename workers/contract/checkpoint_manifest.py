"""Files of a checkpoint in durable storage: the manifest, and the list of pieces that belongs to it. Pure.

    manifest.json    written last: step, generation, layout, and each file with its size and CRC-32
    pieces.json.zz   the CRC-32 of each chunk of each file, and the place of each part of each tensor.

A file of the manifest may be in the folder of an older checkpoint of the same job: `../step-8.gen-1/__0_0.distcp`.
That part of the state has not changed since.
"""

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

VERSION = 2
MANIFEST = "manifest.json"
REMOVED = "removed.json"
"""The former manifest of a removed checkpoint. Newer checkpoints still use files of its folder."""
PIECES = "pieces.json.zz"
CHUNK_BYTES = 8 * 1024 * 1024
"""Bytes of a file that have a checksum of their own. The last chunk of a file may be shorter."""
MAX_PIECES_BYTES = 1 << 32
"""Largest accepted list of pieces, decompressed."""
FOLDER = re.compile(r"step-(\d+)\.gen-(\d+)")
_OLDER = re.compile(rf"\.\./({FOLDER.pattern})/([^/]+)")


class ManifestError(ValueError):
    """A manifest or a list of pieces that regroup did not write, or that is damaged."""


@dataclass(frozen=True)
class Piece:
    """Part of a tensor: a box of the global tensor, and the bytes that hold it."""

    name: str
    dtype: str
    """Name of the type in torch, without `torch.`: `float32`."""
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]
    """First element of the box in the global tensor."""
    shape: tuple[int, ...]
    file: str
    """Path relative to the folder of the checkpoint."""
    start: int
    """First byte of the container, which `torch.load` reads."""
    length: int
    """Bytes of the container."""
    data_start: int
    """First byte of the values themselves, in row-major order."""
    nbytes: int
    head: int
    """CRC-32 of the first bytes of the values: a quick way to see that a piece has changed."""
    digest: str
    """First half of the SHA-256 of the values, hexadecimal; empty for a piece that changes from save to save."""

    @property
    def box(self) -> tuple[object, ...]:
        """Return what the piece is, without its values and its place."""
        return self.name, self.dtype, self.global_shape, self.offset, self.shape


@dataclass(frozen=True)
class FileChunks:
    """A file of a checkpoint with the checksums of its chunks."""

    size_bytes: int
    crcs: tuple[int, ...]
    """CRC-32 of each chunk."""


@dataclass(frozen=True)
class Pieces:
    """Files and pieces of a checkpoint, or of one node's part of it."""

    files: Mapping[str, FileChunks]
    pieces: tuple[Piece, ...]

    def packed(self) -> bytes:
        """Return the compressed list."""
        files = {name: [file.size_bytes, list(file.crcs)] for name, file in self.files.items()}
        content = {
            "version": VERSION,
            "chunk_bytes": CHUNK_BYTES,
            "files": files,
            "pieces": [_row(each) for each in self.pieces],
        }
        return zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 1)


def unpack_pieces(data: bytes) -> Pieces:
    """Return the pieces of a compressed list.

    Raises:
        ManifestError: the data is not a list of pieces.
    """
    try:
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(data, MAX_PIECES_BYTES)
        if not unpacking.eof:
            raise ManifestError(f"the list of pieces is incomplete, or has more than {MAX_PIECES_BYTES} bytes")
        content = cast(Mapping[str, Any], json.loads(text))
        if (found := (content["version"], content["chunk_bytes"])) != (VERSION, CHUNK_BYTES):
            raise ManifestError(
                f"the list of pieces has version {found[0]} and chunks of {found[1]} bytes; this regroup reads "
                f"version {VERSION} with {CHUNK_BYTES}"
            )
        files = {
            checked_name(name): FileChunks(int(size), tuple(int(crc) for crc in crcs))
            for name, (size, crcs) in content["files"].items()
        }
        return Pieces(files, tuple(_piece(row) for row in content["pieces"]))
    except ManifestError:
        raise
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ManifestError(f"the list of pieces is damaged: {type(error).__name__}: {error}") from error


def merge(parts: Sequence[Pieces]) -> Pieces:
    """Return the pieces of all nodes as one list."""
    files = {name: file for part in parts for name, file in part.files.items()}
    return Pieces(files, tuple(piece for part in parts for piece in part.pieces))


def shard_name(rank: int) -> str:
    """Return the name of the file with the tensors that a rank writes, as torch names it."""
    return f"__{rank}_0.distcp"


def facts_name(rank: int) -> str:
    """Return the name of the file with the small facts of a rank."""
    return f"facts-{rank}.json"


def checked_name(name: str) -> str:
    """Return the name of a file if it is in the folder of the checkpoint, or of another checkpoint of the job.

    Raises:
        ManifestError: it is elsewhere.
    """
    if _OLDER.fullmatch(name) or not (name.startswith("/") or ".." in name.split("/")):
        return name
    raise ManifestError(f"it names the file {name[:80]!r}, which is outside of it")


def beside(name: str, folder: str) -> str:
    """Return the name that a file of the checkpoint in `folder` has for another checkpoint of the job."""
    return name if older_place(name) else f"../{folder}/{name}"


def older_place(name: str) -> tuple[str, str] | None:
    """Return folder and name of a file that belongs to an older checkpoint; None for any other file."""
    match = _OLDER.fullmatch(name)
    return (match[1], match[4]) if match else None


def used_files(manifest: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return folder and name of each file of older checkpoints that a checkpoint uses.

    Raises:
        ManifestError: the manifest is damaged.
    """
    try:
        names = [str(entry["name"]) for entry in manifest["files"]]
    except (KeyError, TypeError) as error:
        raise ManifestError(f"the manifest is damaged: {type(error).__name__}: {error}") from error
    return {place for name in names if (place := older_place(name)) is not None}


def _row(piece: Piece) -> list[Any]:
    return [
        piece.name,
        piece.dtype,
        piece.global_shape,
        piece.offset,
        piece.shape,
        piece.file,
        piece.start,
        piece.length,
        piece.data_start,
        piece.nbytes,
        piece.head,
        piece.digest,
    ]


def _piece(row: Sequence[Any]) -> Piece:
    name, dtype, whole, offset, shape, *place = row
    return Piece(name, dtype, tuple(whole), tuple(offset), tuple(shape), *place)
