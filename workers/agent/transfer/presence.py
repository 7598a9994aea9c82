"""Memory made present before it is used: the kernel enters many pages into the page table at once.

Otherwise the first access to each page of a new mapping interrupts the copy, which then runs at a fraction of its rate.
A read enters all pages around it that have content, and later writes to them do not interrupt either. So one read of
each window costs less than half of `MADV_POPULATE_WRITE`, which enters page by page. Only pages without content need
that.
"""

import mmap

import numpy as np

from regroup.workers.os.memory_files import populate

_WINDOW_BYTES = 64 << 10
"""Bytes that the kernel enters around a read: its default of `fault_around_bytes`."""


def prefault(view: memoryview, *, is_written: bool = False) -> None:
    """Make memory of a mapped file present: for reads of its content, or for writes to all of it.

    Memory that is present costs little. Where the kernel refuses, the first access does the rest.
    """
    if not view:
        return
    content = np.frombuffer(view, np.uint8)
    content[::_WINDOW_BYTES].max()
    content[-1].item()
    if is_written:
        first = content.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
        populate(first, content.ctypes.data + len(view) - first)
