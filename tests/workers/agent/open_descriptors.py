"""How many descriptors this process holds."""

import contextlib
import gc
import os


def descriptors() -> int:
    """Those of garbage are closed first: what earlier tests left for the collector is not this test's."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def memory_files() -> int:
    """Those of memory files alone: threads that earlier tests have left may close one of another kind at any time."""
    gc.collect()
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{name}").startswith("/memfd:")
    return found
