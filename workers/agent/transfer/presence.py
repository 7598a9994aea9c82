"""Memory made present before it is used: the kernel enters many pages into the page table at once.

Otherwise the first access to each page of a new mapping interrupts the copy, which then runs at a fraction of its rate.
"""

import ctypes
import mmap

_POPULATE_READ, _POPULATE_WRITE = 22, 23
"""`MADV_POPULATE_READ` and `MADV_POPULATE_WRITE` of madvise(2), since Linux 5.14."""
_LIBRARY = ctypes.CDLL(None)


def prefault(view: memoryview, *, is_written: bool = False) -> None:
    """Make mapped memory present, for reads or for writes. Where the kernel refuses, the first access does it.

    The call releases the interpreter's lock. `view` must be writable, because only such memory has an address.
    """
    if not view:
        return
    address = ctypes.addressof(ctypes.c_char.from_buffer(view))
    first = address // mmap.PAGESIZE * mmap.PAGESIZE
    pages = -(-(address + len(view) - first) // mmap.PAGESIZE) * mmap.PAGESIZE
    advice = _POPULATE_WRITE if is_written else _POPULATE_READ
    _LIBRARY.madvise(ctypes.c_void_p(first), ctypes.c_size_t(pages), advice)
