"""Memory files that processes share: they have no name in a file system that could leak, and they never become shorter.

An access to a mapped file beyond its end raises a signal that ends the process. A rank runs code of a user and has the
descriptors of memory that its agent maps. Therefore the kernel must refuse to shorten such a file.
"""

import ctypes
import fcntl
import mmap
import os
from pathlib import Path

HUGE_PAGE_SETTING = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
"""Setting of the kernel for memory files. `advise` lets snapshots have huge pages; the default is `never`."""
_POPULATE_WRITE = 23
"""`MADV_POPULATE_WRITE` of madvise(2), since Linux 5.14: prefault page tables for writes."""
_HUGE_PAGES = 14
"""`MADV_HUGEPAGE`: since Linux 2.6.38, for memory files where the setting is `advise`."""
_HUGE_BYTES = 2 << 20
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


def have_huge_pages() -> bool:
    """Return whether memory files can have huge pages on this host; True if the kernel does not say."""
    try:
        chosen = HUGE_PAGE_SETTING.read_text().partition("[")[2].partition("]")[0]
    except OSError:
        return True
    return chosen not in ("never", "deny")


def allocate_memory(fd: int, size_bytes: int) -> None:
    """Give a memory file at least this size and memory for all of it, in huge pages where the host allows them.

    A write to memory that the host lacks would raise a signal instead of an error.

    Raises:
        OSError: the host has no memory.
    """
    if size_bytes >= _HUGE_BYTES and allocated_bytes(fd) < size_bytes and have_huge_pages():
        if os.fstat(fd).st_size < size_bytes:
            os.ftruncate(fd, size_bytes)
        with mmap.mmap(fd, size_bytes) as memory:
            advise_huge_pages(address_of(memory), size_bytes)
            populate(address_of(memory), size_bytes)
    os.posix_fallocate(fd, 0, size_bytes)  # the rest of it


def address_of(memory: mmap.mmap) -> int:
    """Return the address of a mapping."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def advise_huge_pages(address: int, size_bytes: int) -> None:
    """Ask for huge pages in a mapping. Hosts without them refuse."""
    _advise(address, size_bytes, _HUGE_PAGES)


def populate(address: int, size_bytes: int) -> bool:
    """Make all pages of a mapping present for writes. Return False if the kernel refused."""
    return _advise(address, size_bytes, _POPULATE_WRITE)


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


def _advise(address: int, size_bytes: int, advice: int) -> bool:
    """Call madvise(2) without Python's lock, which the method of `mmap` would hold."""
    library = ctypes.CDLL(None, use_errno=True)
    pages = -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
    return library.madvise(ctypes.c_void_p(address), ctypes.c_size_t(pages), advice) == 0
