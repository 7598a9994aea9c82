"""Threads that copy or read large memory in parts. Imports neither torch nor ray.

One core copies about 10 GB per second, a host several times that. The calls that move the bytes release Python's lock.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import TypeVar

MOST_THREADS = 8
"""Most threads of one process. More cores do not make a host's memory faster."""
LEAST_PART_BYTES = 16 << 20
"""Least bytes of a part: a smaller one is done before another thread has started."""
_Result = TypeVar("_Result")


def thread_count(sharing: int) -> int:
    """Return the threads for copies of one of `sharing` processes on this host that copy at the same time."""
    return max(1, min(MOST_THREADS, len(os.sched_getaffinity(0)) // max(1, sharing)))


def split(size_bytes: int, unit_bytes: int, threads: int) -> list[tuple[int, int]]:
    """Return first and last byte of about equal parts that begin at multiples of `unit_bytes`."""
    count = max(1, min(threads, size_bytes // LEAST_PART_BYTES))
    units = -(-size_bytes // unit_bytes)
    edges = [min(size_bytes, units * number // count * unit_bytes) for number in range(count + 1)]
    return list(pairwise(edges))


def run_parts(parts: Sequence[tuple[int, int]], work: Callable[[int, int], _Result]) -> list[_Result]:
    """Call `work` with each part, the first in this thread, and return the results in their order."""
    if len(parts) == 1:
        return [work(*parts[0])]
    others = [_pool(os.getpid()).submit(work, *part) for part in parts[1:]]
    return [work(*parts[0]), *(other.result() for other in others)]


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Return the threads of this process. A fork does not copy the threads of its parent."""
    return ThreadPoolExecutor(MOST_THREADS - 1, thread_name_prefix="state-copy")
