"""Memory of one snapshot buffer: a memory file, mapped once. Imports neither torch nor ray.

The first access to memory costs several times as much as a copy to it: the kernel clears each page and enters it into
the page table of the process. `touch` does that before the memory is needed, in huge pages where the host allows them.
"""

import mmap
import os
import threading
from collections.abc import Callable
from contextlib import suppress

from regroup.workers.os.memory_files import (
    address_of,
    advise_huge_pages,
    allocate_memory,
    allocated_bytes,
    free_memory_after,
    populate,
)

_TOUCHED_AT_ONCE_BYTES = 16 << 20
_PAGE_BYTES = mmap.PAGESIZE
_TOLERATED = 8
"""An eighth of the memory may be more than is needed. The size of an index changes a little from step to step."""


class BufferMemory:
    """A memory file and its mapping. It takes over the descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._memory: mmap.mmap | None = None
        self._lock = threading.Lock()
        """A thread may touch the memory while another one uses it."""

    def mapped(self) -> mmap.mmap:
        """Return the memory. A new mapping has no pages yet, so it is made only if the file has grown.

        The mapping may be longer than the file. Check `file_bytes` before an access to what another process wrote.
        """
        with self._lock:
            return self._mapped()

    def allocate(self, size_bytes: int) -> mmap.mmap:
        """Return at least this much memory that can be written.

        Raises:
            OSError: the host has no memory. A write to memory that the host lacks would raise a signal instead.
        """
        allocated = allocated_bytes(self._fd)
        if allocated < size_bytes:
            allocate_memory(self._fd, size_bytes)
        elif allocated - size_bytes > size_bytes // _TOLERATED:
            free_memory_after(self._fd, size_bytes)  # more was touched than the state needs
        return self.mapped()

    def touch(self, size_bytes: int, may_continue: Callable[[], bool] = lambda: True) -> bool:
        """Give the file at least this size, and prefault its memory. Other threads may use it at the same time.

        Args:
            size_bytes: expected size of the content.
            may_continue: called before each part. False ends the work.

        Returns:
            True if all of the memory is present. Otherwise a write allocates the rest.
        """
        with self._lock:
            if os.fstat(self._fd).st_size < size_bytes:
                os.ftruncate(self._fd, size_bytes)
            memory = self._mapped()
        address = address_of(memory)
        advise_huge_pages(address, len(memory))
        for first in range(0, size_bytes, _TOUCHED_AT_ONCE_BYTES):
            part_bytes = min(_TOUCHED_AT_ONCE_BYTES, size_bytes - first)
            if not may_continue() or not populate(address + first, part_bytes):
                return False
        return True

    def file_bytes(self) -> int:
        """Return the size of the file."""
        return os.fstat(self._fd).st_size

    def place(self) -> tuple[int, int]:
        """Return address and size in bytes of the memory that is allocated."""
        memory = self.mapped()
        return address_of(memory), min(len(memory), allocated_bytes(self._fd))

    def close(self) -> None:
        """Close the descriptor. Existing views keep the memory."""
        os.close(self._fd)
        with self._lock:
            if self._memory is not None:
                with suppress(BufferError):  # a view still exists; the mapping ends with it
                    self._memory.close()
                self._memory = None

    def _mapped(self) -> mmap.mmap:
        size = os.fstat(self._fd).st_size
        if self._memory is None or len(self._memory) < size:
            # An empty file cannot be mapped. One anonymous byte reads as an empty buffer.
            self._memory = mmap.mmap(self._fd, size) if size else mmap.mmap(-1, 1)
        return self._memory
