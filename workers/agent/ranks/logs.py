"""Rank output on a node: bounded on disk while it grows, read in pieces, and left in durable storage at the end.

Of a stream that grows beyond measure the first and the last part are kept. What lies between is punched out of the
file, so that offsets stay what they are for whoever reads, and the rank writes on as if nothing had happened.
"""

import ctypes
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from regroup.workers.contract.agent_records import LogPiece
from regroup.workers.storage import fsspec_storage

KEEP_FIRST = 8 * 2**20
"""Bytes of a stream's beginning that are always kept."""
KEEP_LAST = 56 * 2**20
"""Bytes of its end, at least; up to as much again as is written between two looks."""
_BLOCK = 64 * 1024
"""A multiple of any file system's block: only whole blocks can be punched out."""
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01
_COPIES_AT_ONCE = 4
_COPY_BYTES = 2**20
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def trim(paths: Iterable[Path], first: int = KEEP_FIRST, last: int = KEEP_LAST) -> None:
    """Give back the disk space of what is kept no longer. File systems that know no holes keep it all."""
    for path in paths:
        try:
            gap = _gap(path.stat().st_size, first, last)
            if gap is None:
                continue
            with path.open("r+b") as file:
                start = os.lseek(file.fileno(), gap[0], os.SEEK_DATA)  # before it was punched the last time
                if start < gap[1]:
                    _libc.fallocate(file.fileno(), _PUNCH_HOLE_KEEP_SIZE, start, gap[1] - start)
        except OSError:
            continue  # it is not there yet, or no longer


def read(path: Path, offset: int, limit: int) -> LogPiece:
    """Up to `limit` bytes from `offset` on, or from behind the gap that it lies in; with the place and the file's size.

    Raises:
        FileNotFoundError: there is no such output here.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if offset >= size:
            return LogPiece(b"", offset, size)
        start = os.lseek(file.fileno(), offset, os.SEEK_DATA)
        end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
        return LogPiece(os.pread(file.fileno(), min(limit, end - start), start), start, size)


def archive(log_dir: Path, prefix: str, root: str) -> None:
    """Copy this node's rank output below `root`, where it outlives the node: all of a stream under its name, or its
    first part, and its last under that name and `.from-OFFSET`. Empty ones too: to be found empty is another answer
    than not to be found. What cannot be copied is said in the agent's own log; nothing waits for it."""
    copies = [
        (path, fsspec_storage.join(root, name), begin, end)
        for path in sorted(log_dir.glob(f"{prefix}*"))
        for name, begin, end in _parts(path, path.name.removeprefix(prefix))
    ]
    with ThreadPoolExecutor(_COPIES_AT_ONCE) as pool:  # many small files: storage answers slower than it takes
        for _ in pool.map(_copy, copies):
            pass


def _gap(size: int, first: int, last: int) -> tuple[int, int] | None:
    begin, end = -(-first // _BLOCK) * _BLOCK, (size - last) // _BLOCK * _BLOCK
    return (begin, end) if end > begin else None


def _parts(path: Path, name: str) -> Sequence[tuple[str, int, int]]:
    size = path.stat().st_size
    gap = _gap(size, KEEP_FIRST, KEEP_LAST)
    return [(name, 0, size)] if gap is None else [(name, 0, gap[0]), (f"{name}.from-{gap[1]}", gap[1], size)]


def _copy(copy: tuple[Path, str, int, int]) -> None:
    path, uri, begin, end = copy
    try:
        with path.open("rb") as reader, fsspec_storage.writing(uri) as writer:
            reader.seek(begin)
            while begin < end and (chunk := reader.read(min(_COPY_BYTES, end - begin))):
                begin += len(chunk)
                writer.write(chunk)
    except Exception as error:  # a full or absent storage raises what its package likes
        print(f"{path} is not archived as {uri}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
