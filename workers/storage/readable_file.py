"""Read parts of a file on a local file system. Blocking; threads may share a file.

A large part that is not in the page cache is read past it (`O_DIRECT`). Through the cache, a read costs about four
times as much processor time, and it replaces pages that training uses.
"""

import ctypes
import errno
import mmap
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

_ALIGNED_BYTES = 4096
"""Unit of positions and sizes of direct reads; enough for all common disks."""
_LEAST_BYTES = 1 << 20
"""Smallest part that is read directly."""
_STAGED_BYTES = 8 << 20
_UNSUPPORTED = (errno.EINVAL, errno.EOPNOTSUPP)
"""Errors of file systems that do not support such a read."""
_LIBRARY = ctypes.CDLL(None)
_MOST_VIEWS = os.sysconf("SC_IOV_MAX")


class ReadableFile:
    """An open file."""

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            OSError: it cannot be opened.
        """
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._direct_fd = _open_direct(path)

    def read_into(self, start: int, views: Sequence[memoryview]) -> int:
        """Fill views, one after the other, and return the number of bytes; fewer at the end of the file.

        Raises:
            OSError: the disk did not answer.
        """
        views = [view for view in views if view]
        size = sum(len(view) for view in views)
        is_large = size >= _LEAST_BYTES and start % _ALIGNED_BYTES == 0
        if is_large and self._direct_fd is not None and not _is_cached(self._fd, start, size):
            try:
                return _read_direct(self._direct_fd, start, views)
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
        return _read_buffered(self._fd, start, views)

    def close(self) -> None:
        """Close the file. No read may run."""
        for fd in (self._fd, self._direct_fd):
            if fd is not None:
                os.close(fd)
        self._fd, self._direct_fd = -1, None


def _open_direct(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    except OSError:
        return None


def _is_cached(fd: int, start: int, size: int) -> bool:
    """Return whether the page cache has all of a part. It is not read: a read without waiting would fill the cache."""
    size = min(size, os.fstat(fd).st_size - start)
    if size <= 0:
        return True
    with mmap.mmap(fd, size, prot=mmap.PROT_READ, offset=start) as mapped:
        pages = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
        address = np.frombuffer(mapped, np.uint8).ctypes.data
        if _LIBRARY.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages.ctypes.data_as(ctypes.c_void_p)):
            return True
        return bool((pages & 1).all())


def _read_buffered(fd: int, start: int, views: Sequence[memoryview]) -> int:
    done, left = 0, list(views)
    while left:
        count = os.preadv(fd, left[:_MOST_VIEWS], start + done)
        if not count:
            break
        done += count
        while left and count >= len(left[0]):
            count -= len(left.pop(0))
        if count:
            left[0] = left[0][count:]
    return done


def _read_direct(fd: int, start: int, views: Sequence[memoryview]) -> int:
    """Read into aligned memory, and copy from there while the processor has it in its cache."""
    size, done, staged = sum(len(view) for view in views), 0, _staging()
    left = list(views)
    while done < size:
        part_bytes = min(len(staged), -(-(size - done) // _ALIGNED_BYTES) * _ALIGNED_BYTES)
        count = os.preadv(fd, [staged[:part_bytes]], start + done)
        _spread(staged[: min(count, size - done)], left)
        done += min(count, size - done)
        if count % _ALIGNED_BYTES or not count:
            break  # the end of the file
    return done


def _spread(data: memoryview, left: list[memoryview]) -> None:
    """Copy data to the first views, and remove what is full. numpy copies without the interpreter's lock."""
    while data:
        count = min(len(data), len(left[0]))
        np.copyto(np.frombuffer(left[0][:count], np.uint8), np.frombuffer(data[:count], np.uint8))
        data = data[count:]
        left[:1] = [left[0][count:]] if count < len(left[0]) else []


_MEMORY = threading.local()


def _staging() -> memoryview:
    """Return aligned memory of this thread."""
    if not hasattr(_MEMORY, "staged"):
        _MEMORY.staged = memoryview(mmap.mmap(-1, _STAGED_BYTES))
    return _MEMORY.staged
