"""Heap settings of a rank that computes on CPUs.

Each step frees memory that the next step allocates again. When enough memory is free at the end of the heap, glibc
returns it to the kernel. Each step then faults it in again, page by page: up to 2,000 page faults per step and stage of
a small pipeline, about 2 % of its time. The exact number depends on the order of earlier frees.
"""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""
_KEPT_BYTES = 1 << 30
_FROM_HEAP_BYTES = 32 << 20
"""Largest value that glibc accepts. Larger allocations are always mapped separately."""


def retain_freed_memory() -> None:
    """Keep freed memory for the next step. Does nothing if the C library is not glibc."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_MMAP_THRESHOLD, _FROM_HEAP_BYTES)
        library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def release_freed_memory() -> None:
    """Return free memory to the kernel. Does nothing if the C library is not glibc."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
