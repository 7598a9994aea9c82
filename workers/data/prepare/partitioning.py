"""How the files of a split are cut into units, each made by one task into one file of records.

The cut depends on the files alone, not on how many tasks run: a unit is as many consecutive pieces as fill
`unit_bytes`, a piece is a whole file or, of jsonl and parquet, a part of a larger one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fsspec.core import url_to_fs

from regroup.workers.contract.error_classes import DataError
from regroup.workers.data.prepare.readers import row_groups
from regroup.workers.data.sources import SourceFile

SMALLEST_UNIT_BYTES = 8 << 20
MOST_UNITS = 256
"""About so many units a split, if it is large: a rank maps as many files."""


@dataclass(frozen=True)
class Piece:
    """A part of a file: bytes of jsonl, row groups of parquet, otherwise the whole of it (`stop` 0)."""

    uri: str
    start: int = 0
    stop: int = 0


def units(
    files: Sequence[SourceFile], file_format: str, smallest_bytes: int = SMALLEST_UNIT_BYTES
) -> list[list[Piece]]:
    """Cut the files of one split, in their order.

    Raises:
        DataError: a file is not readable.
    """
    sizes = [size_bytes(file) for file in files]
    unit_bytes = max(smallest_bytes, -(-sum(sizes) // MOST_UNITS))
    found: list[list[Piece]] = []
    filled = 0
    for file, size in zip(files, sizes, strict=True):
        for piece, piece_bytes in _cut(file, size, file_format, unit_bytes):
            if not found or filled + piece_bytes > unit_bytes:
                found.append([])
                filled = 0
            found[-1].append(piece)
            filled += piece_bytes
    return found


def size_bytes(file: SourceFile) -> int:
    """Size of a file.

    Raises:
        DataError: it is not readable.
    """
    fs, path = url_to_fs(file.uri)
    try:
        return int(fs.size(path))
    except OSError as error:
        raise DataError(f"data {file.uri!r} is not readable: {error.strerror or error}") from error


def _cut(file: SourceFile, size: int, file_format: str, unit_bytes: int) -> list[tuple[Piece, int]]:
    if size <= unit_bytes or file_format not in ("jsonl", "parquet"):
        return [(Piece(file.uri), size)]
    if file_format == "jsonl":
        starts = range(0, size, unit_bytes)
        return [(Piece(file.uri, at, min(size, at + unit_bytes)), min(unit_bytes, size - at)) for at in starts]
    return [(Piece(file.uri, at, at + 1), group_bytes) for at, group_bytes in enumerate(row_groups(file.uri))]
