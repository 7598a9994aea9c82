"""Output of the ranks of a node: bounded on disk while it grows, read in pieces, and archived at the end.

Of a stream that exceeds the bound, the first and the last part are retained. A hole is punched into the file between
them, so offsets do not change for readers, and the rank continues to write as before.
"""

import ctypes
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from regroup.workers.contract.agent_records import LogPiece
from regroup.workers.environment.redaction import Redactor, StreamRedactor
from regroup.workers.storage import fsspec_storage

FIRST_BYTES = 8 * 2**20
"""Size of a stream's beginning that is always retained."""
LAST_BYTES = 56 * 2**20
"""Smallest size of a stream's end that is retained. Output written between two calls of `trim` adds to it."""
_BLOCK_BYTES = 64 * 1024
"""A multiple of the block size of every file system. Only whole blocks can be punched out."""
_FALLOC_FLAGS = 0x02 | 0x01
"""FALLOC_FL_PUNCH_HOLE and FALLOC_FL_KEEP_SIZE."""
_CONCURRENT_COPIES = 4
_COPY_BYTES = 2**20
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def trim(paths: Iterable[Path], first: int = FIRST_BYTES, last: int = LAST_BYTES) -> None:
    """Free the disk space between the first and the last part. A file system without holes retains everything."""
    for path in paths:
        try:
            gap = _gap(path.stat().st_size, first, last)
            if gap is None:
                continue
            with path.open("r+b") as file:
                start = os.lseek(file.fileno(), gap[0], os.SEEK_DATA)  # the end of the hole of the previous call
                if start < gap[1]:
                    _libc.fallocate(file.fileno(), _FALLOC_FLAGS, start, gap[1] - start)
        except OSError:
            continue  # the file does not exist yet, or no longer


def read(path: Path, offset: int, limit: int, redactor: Redactor) -> LogPiece:
    """Read up to `limit` bytes without secrets from `offset`, or from the end of the hole that contains it.

    Raises:
        FileNotFoundError: this node does not have the output.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if offset >= size:
            return LogPiece(b"", offset, size)
        start = os.lseek(file.fileno(), offset, os.SEEK_DATA)
        end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
        end = min(start + limit, end)
        begin = max(0, start - redactor.context_bytes)  # a secret may begin before this piece or end after it
        whole = os.pread(file.fileno(), end + redactor.context_bytes - begin, begin)
        shown = redactor.hide_bytes(whole, is_at_end=begin + len(whole) >= size)
        return LogPiece(shown[start - begin : end - begin], start, size)


def archive(log_dir: Path, prefix: str, root: str, redactor: Redactor) -> None:
    """Copy the rank output of this node without secrets below `root` in durable storage.

    A whole stream is copied under its name. Of a trimmed stream, the first part has that name, and the last part has
    that name and `.from-OFFSET`. Empty streams are copied too: an empty output differs from a missing one. A copy that
    fails is reported in the agent's own log, and the others continue.
    """
    copies = [
        (path, fsspec_storage.join(root, name), begin, end)
        for path in sorted(log_dir.glob(f"{prefix}*"))
        for name, begin, end in _parts(path, path.name.removeprefix(prefix))
    ]
    with ThreadPoolExecutor(_CONCURRENT_COPIES) as pool:  # many small files: the latency of storage dominates
        for _ in pool.map(partial(_copy, redactor=redactor), copies):
            pass


def _gap(size: int, first: int, last: int) -> tuple[int, int] | None:
    begin, end = -(-first // _BLOCK_BYTES) * _BLOCK_BYTES, (size - last) // _BLOCK_BYTES * _BLOCK_BYTES
    return (begin, end) if end > begin else None


def _parts(path: Path, name: str) -> Sequence[tuple[str, int, int]]:
    size = path.stat().st_size
    gap = _gap(size, FIRST_BYTES, LAST_BYTES)
    return [(name, 0, size)] if gap is None else [(name, 0, gap[0]), (f"{name}.from-{gap[1]}", gap[1], size)]


def _copy(copy: tuple[Path, str, int, int], redactor: Redactor) -> None:
    path, uri, begin, end = copy
    try:
        with path.open("rb") as reader, fsspec_storage.writing(uri) as writer:
            reader.seek(begin)
            stream = StreamRedactor(redactor)
            while begin < end and (chunk := reader.read(min(_COPY_BYTES, end - begin))):
                begin += len(chunk)
                writer.write(stream.feed(chunk))
    except Exception as error:  # each storage package has its own exceptions
        print(f"{path} was not archived as {uri}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
