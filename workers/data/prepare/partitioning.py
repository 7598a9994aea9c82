"""Partition the files of a split into units. One task turns a unit into one file of records.

The partition depends only on the files, not on the number of tasks. A unit is a series of consecutive pieces that fill
`unit_bytes`. A piece is a whole file, or a part of a large jsonl or parquet file.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fsspec.core import url_to_fs

from regroup.workers.contract.error_classes import DataError
from regroup.workers.data.prepare.readers import row_groups
from regroup.workers.data.sources import SourceFile

SMALLEST_UNIT_BYTES = 8 << 20
MOST_UNITS = 256
"""Approximate number of units of a large split. A rank maps as many files."""


@dataclass(frozen=True)
class Piece:
    """Part of a file: bytes of jsonl, row groups of parquet, otherwise the whole file (`stop` 0)."""

    uri: str
    start: int = 0
    stop: int = 0


def units(
    files: Sequence[SourceFile], file_format: str, smallest_bytes: int = SMALLEST_UNIT_BYTES
) -> list[list[Piece]]:
    """Partition the files of one split in order.

    Raises:
        DataError: A file is not readable.
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
    """Return the size of a file.

    Raises:
        DataError: The file is not readable.
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
