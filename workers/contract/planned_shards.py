"""Plan of a node's files of a checkpoint: a process with torch makes it, and the agent writes by it. Pure.

The maker runs as the job's user, so the agent checks what it reads.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

MAX_PLAN_BYTES = 1 << 30
"""Largest accepted plan, decompressed."""


class PlanError(ValueError):
    """A plan that no saver of this regroup made."""


@dataclass(frozen=True)
class Container:
    """Bytes that surround the data of a tensor in a file."""

    start: int
    """First byte in the file of containers."""
    nbytes: int
    before_bytes: int
    """Number of bytes before the data. The rest comes after it."""


@dataclass(frozen=True)
class PlannedPiece:
    """Part of a tensor that a rank writes, and the place of its values in the rank's snapshot."""

    name: str
    dtype: str
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]
    shape: tuple[int, ...]
    container: int
    """Number of its container."""
    start: int
    """First byte in the memory file of the snapshot."""
    nbytes: int


@dataclass(frozen=True)
class PlannedFile:
    """Files that one rank writes."""

    facts: tuple[int, int]
    """Start and number of the bytes of its small facts, in the file of containers."""
    pieces: tuple[PlannedPiece, ...]


@dataclass(frozen=True)
class PlannedShards:
    """Files of several ranks, in the order in which they were requested."""

    files: tuple[PlannedFile, ...]
    containers: tuple[Container, ...]

    def packed(self) -> bytes:
        """Return the plan as compressed JSON."""
        content = {
            "files": [[file.facts, [_row(piece) for piece in file.pieces]] for file in self.files],
            "containers": [[each.start, each.nbytes, each.before_bytes] for each in self.containers],
        }
        return zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 1)


def unpack_plan(data: bytes, files: int) -> PlannedShards:
    """Return the plan of this number of files.

    Raises:
        PlanError: the data is not one.
    """
    try:
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(data, MAX_PLAN_BYTES)
        if not unpacking.eof:
            raise PlanError(f"the plan of a checkpoint is incomplete, or has more than {MAX_PLAN_BYTES} bytes")
        content = cast(Mapping[str, Any], json.loads(text))
        containers = tuple(_container(row) for row in content["containers"])
        found = tuple(_file(facts, rows, len(containers)) for facts, rows in content["files"])
    except PlanError:
        raise
    except (zlib.error, ValueError, KeyError, TypeError) as error:
        raise PlanError(f"the plan of a checkpoint is damaged: {type(error).__name__}: {error}") from error
    if len(found) != files:
        raise PlanError(f"the plan of a checkpoint has {len(found)} files instead of {files}")
    return PlannedShards(found, containers)


def _row(piece: PlannedPiece) -> list[Any]:
    box = [piece.name, piece.dtype, piece.global_shape, piece.offset, piece.shape]
    return [*box, piece.container, piece.start, piece.nbytes]


def _file(facts: Sequence[Any], rows: Sequence[Sequence[Any]], containers: int) -> PlannedFile:
    start, nbytes = (_size(each) for each in facts)
    return PlannedFile((start, nbytes), tuple(_piece(row, containers) for row in rows))


def _piece(row: Sequence[Any], containers: int) -> PlannedPiece:
    name, dtype, *shapes, container, start, nbytes = row
    whole, offset, shape = (tuple(_size(each) for each in values) for values in shapes)
    if not isinstance(name, str) or not isinstance(dtype, str) or not 0 <= _size(container) < containers:
        raise PlanError(f"the plan of a checkpoint has the piece {str(row)[:200]}, which is none")
    return PlannedPiece(name, dtype, whole, offset, shape, container, _size(start), _size(nbytes))


def _container(row: Sequence[Any]) -> Container:
    start, nbytes, before = (_size(each) for each in row)
    if before > nbytes:
        raise PlanError(f"the plan of a checkpoint has a container of {nbytes} bytes with {before} before the data")
    return Container(start, nbytes, before)


def _size(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise PlanError(f"the plan of a checkpoint has {value!r} where a size must be")
    return value
