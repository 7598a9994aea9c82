"""The return of memory that the server no longer uses.

The C library keeps the memory that a program has freed, page by page between pieces that are still in use. In a server
that runs for months, that is most of the growth. Each thread has such an arena, and the server has many threads.
"""

import asyncio
import ctypes

INTERVAL_S = 60.0


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
