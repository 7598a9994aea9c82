"""Memory files that processes share: they have no name in a file system that could leak, and they never become shorter.

An access to a mapped file beyond its end raises a signal that ends the process. A rank runs code of a user and has the
descriptors of memory that its agent maps. Therefore the kernel must refuse to shorten such a file.
"""

import ctypes
import fcntl
import os

_SAME_SIZE, _PUNCH_HOLE = 1, 2
"""`FALLOC_FL_SAME_SIZE` and `FALLOC_FL_PUNCH_HOLE` of fallocate(2)."""
_BLOCK_BYTES = 512


def new_memory_file(name: str, size_bytes: int = 0) -> int:
    """Create a memory file and return its descriptor. It can grow, but no process can shorten it.

    Args:
        name: name that `/proc` shows.
        size_bytes: size of the file. Its memory is allocated at the first use of each page.
    """
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size_bytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(fd)
        raise
    return fd


def allocated_bytes(fd: int) -> int:
    """Return the host memory that a memory file uses, at most its size."""
    status = os.fstat(fd)
    return min(status.st_size, status.st_blocks * _BLOCK_BYTES)


def free_memory_after(fd: int, start: int) -> None:
    """Return the memory from byte `start` on to the host. The file has the same size and zeros there.

    Raises:
        OSError: the kernel refused.
    """
    library = ctypes.CDLL(None, use_errno=True)
    count = os.fstat(fd).st_size - start
    if count > 0 and library.fallocate64(fd, _SAME_SIZE | _PUNCH_HOLE, ctypes.c_int64(start), ctypes.c_int64(count)):
        number = ctypes.get_errno()
        raise OSError(number, f"cannot free the memory of a file from byte {start} on: {os.strerror(number)}")
