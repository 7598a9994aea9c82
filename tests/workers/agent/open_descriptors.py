"""Number of descriptors that this process has open."""

import contextlib
import gc
import os


def descriptors() -> int:
    """Return the number of open descriptors. Threads of earlier tests may close some later: compare with `<=`."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def memory_files() -> int:
    """Return the number of open memory files. Threads of earlier tests close other descriptors at any time."""
    gc.collect()
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{name}").startswith("/memfd:")
    return found
