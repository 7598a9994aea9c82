"""Verification of a checkpoint: its files against the sizes and the checksums of its manifest, in bounded parts.

A part ends after some seconds. Its position contains the checksum so far, so that any server can continue it.
"""

import posixpath
import re
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.operations.checkpoints.files import (
    CheckpointFile,
    Folder,
    find_checkpoint,
    read_manifest,
    run_in_storage,
)
from regroup.service.store.rows.records import Checkpoint, JobRow
from regroup.service.store.store import Store

PART_S = 4.0
"""Time after which a part ends."""
_CHUNK_BYTES = 4 * 1024 * 1024
_POSITION = re.compile(r"(\d{1,7})\.(\d{1,15})\.(\d{1,10})")


@dataclass(frozen=True)
class Position:
    """Place at which a verification continues."""

    file: int = 0
    """Index of the file in the manifest."""
    offset: int = 0
    crc32: int = 0
    """Checksum of the bytes of the file before `offset`."""

    def __str__(self) -> str:
        return f"{self.file}.{self.offset}.{self.crc32}"


@dataclass(frozen=True)
class FileFault:
    """A file that is not as the manifest says."""

    name: str
    problem: str
    """Difference, for people."""


@dataclass(frozen=True)
class Verification:
    """Result of a part of a verification."""

    checkpoint: Checkpoint
    files: int
    """Number of files in the manifest."""
    size_bytes: int
    """Size of them all, as the manifest says."""
    verified_files: int
    """Number of files from the first one on whose content was read, in all parts together."""
    verified_bytes: int
    faults: tuple[FileFault, ...]
    """Faults that this part found."""
    next: Position | None
    """Place at which the next part begins; None at the end."""


def parse_position(text: str) -> Position:
    """Return the position of a request; the beginning if the text is empty.

    Raises:
        SpecError: the text is not a position.
    """
    if not text:
        return Position()
    match = _POSITION.fullmatch(text)
    if match is None:
        raise SpecError([FieldIssue("position", "must be `position` of the part before, or empty", text[:60])])
    return Position(int(match[1]), int(match[2]), int(match[3]))


async def verify_part(
    store: Store, job: JobRow, step: int, position: Position, *, reads_contents: bool
) -> Verification:
    """Verify a part of a checkpoint. The first part compares the sizes of all files.

    Args:
        reads_contents: also compare the checksums; otherwise the first part is the only one.

    Raises:
        NotFoundError: there is no such checkpoint.
        ConflictError: its manifest is missing or damaged.
        UnavailableError: the storage does not answer.
    """
    checkpoint = await find_checkpoint(store, job, step)

    def verify(folder: Folder) -> Verification:
        files = read_manifest(folder)
        sizes, faults = _sizes(folder, files), list[FileFault]()
        if position == Position():
            faults += find_size_faults(files, sizes)
        following: Position | None = None
        if reads_contents:
            readable = [each if sizes.get(each.name) == each.size_bytes else None for each in files]
            following, found = read_contents(folder, readable, position, _deadline(PART_S))
            faults += found
        at = Position(len(files)) if following is None else following
        done = files[: at.file] if reads_contents else ()
        read_bytes = sum(each.size_bytes for each in done) + at.offset
        total = sum(each.size_bytes for each in files)
        return Verification(checkpoint, len(files), total, len(done), read_bytes, tuple(faults), following)

    return await run_in_storage(verify, checkpoint.uri)


def find_size_faults(files: Sequence[CheckpointFile], sizes: Mapping[str, int]) -> list[FileFault]:
    """Return the files that are missing or have another size."""
    faults = list[FileFault]()
    for each in files:
        size = sizes.get(each.name)
        if size is None:
            faults.append(FileFault(each.name, "is missing"))
        elif size != each.size_bytes:
            faults.append(FileFault(each.name, f"has {size:,} bytes; the manifest says {each.size_bytes:,}"))
    return faults


def read_contents(
    folder: Folder, files: Sequence[CheckpointFile | None], start: Position, is_over: Callable[[], bool]
) -> tuple[Position | None, list[FileFault]]:
    """Compare checksums from `start` on until `is_over`; return where to continue, and the faults.

    Args:
        files: the files in order; None for one that cannot be compared.
    """
    faults, offset, crc = list[FileFault](), start.offset, start.crc32
    for index in range(start.file, len(files)):
        file = files[index]
        if file is not None:
            with folder.fs.open(folder.join(file.name), "rb") as reader:
                reader.seek(offset)
                while chunk := reader.read(_CHUNK_BYTES):
                    crc, offset = zlib.crc32(chunk, crc), offset + len(chunk)
                    if is_over() and offset < file.size_bytes:
                        return Position(index, offset, crc), faults
            if crc != file.crc32:
                problem = f"has the checksum {crc:08x}; the manifest says {file.crc32:08x}: its content changed"
                faults.append(FileFault(file.name, problem))
        offset = crc = 0
        if is_over() and index + 1 < len(files):
            return Position(index + 1), faults
    return None, faults


def _sizes(folder: Folder, files: Sequence[CheckpointFile]) -> dict[str, int]:
    """Return the size of each file below the folder, and in the older ones whose files it uses, by its name."""
    sizes: dict[str, int] = {}
    for place in sorted({folder.path, *(folder.join(posixpath.dirname(each.name)) for each in files)}):
        found = folder.fs.find(place, detail=True)
        sizes |= {posixpath.relpath(path, folder.path): int(info["size"]) for path, info in found.items()}
    return sizes


def _deadline(part_s: float) -> Callable[[], bool]:
    end_s = time.monotonic() + part_s
    return lambda: time.monotonic() >= end_s
