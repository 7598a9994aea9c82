"""The allocator of the C library: few arenas, and the return of memory that the server no longer uses.

glibc gives each thread an arena of its own, up to eight per processor. It keeps the memory that was freed there, page
by page between pieces that are still in use. The server has many threads that run in turn. Without these two settings,
most of its growth over time is memory of this kind.
"""

import asyncio
import ctypes

INTERVAL_S = 60.0
_MAX_ARENAS = 2
_M_ARENA_MAX = -8
"""Number of the parameter in `malloc.h` of glibc."""


def limit_arenas() -> bool:
    """Let all threads share two arenas. Call it before the process starts threads.

    Returns:
        False if the C library is not glibc.
    """
    change = getattr(ctypes.CDLL(None), "mallopt", None)
    return change is not None and bool(change(_M_ARENA_MAX, _MAX_ARENAS))


async def run_memory_trim(interval_s: float = INTERVAL_S) -> None:
    """Return unused memory to the operating system every `interval_s` seconds; never end."""
    while True:
        await asyncio.sleep(interval_s)
        await asyncio.to_thread(trim_memory)


def trim_memory() -> bool:
    """Return unused memory of this process to the operating system.

    `malloc_trim` (glibc, since 2.8 for all arenas) releases each whole page that holds no data. It locks one arena at a
    time, so the event loop waits for milliseconds at most.

    Returns:
        False if the C library has no such function. Then its allocator is not glibc's, and returns memory by itself.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return False
    trim(ctypes.c_size_t(0))
    return True
