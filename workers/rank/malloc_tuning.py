"""The heap of a rank that computes on CPUs.

A step frees what the next one takes again. glibc gives such memory back to the kernel once enough of it is free at the
end of the heap, and each step has it zeroed and mapped anew, page by page: of a small pipeline up to 2,000 page faults
a step and stage, some 2 % of its time. How many it is depends on what happened to be freed before.
"""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""
_KEPT_BYTES = 1 << 30
_FROM_HEAP_BYTES = 32 << 20
"""The most that glibc takes for it: what is larger is always mapped by itself."""


def retain_freed_memory() -> None:
    """Keep what is freed for the next step. Nothing where the C library is another than glibc."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_MMAP_THRESHOLD, _FROM_HEAP_BYTES)
        library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def release_freed_memory() -> None:
    """To the kernel, what is free at this moment; likewise."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
