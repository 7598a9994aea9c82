"""CUDA's driver in this process, without initializing it.

Reference: CUDA Driver API, "Error Handling" (`CUDA_ERROR_NOT_INITIALIZED`) and "Device Management".
"""

import ctypes
import os

_LIBRARY = "libcuda.so.1"
_NOT_INITIALIZED = 3


def is_initialized(library: str = _LIBRARY) -> bool:
    """Return whether this process has initialized the driver. Such a process cannot be forked.

    Open device files do not tell: NVML opens some of them, too, and may be used before a fork.

    Args:
        library: name of the driver's library.
    """
    try:
        driver = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:  # no module has loaded it
        return False
    return driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != _NOT_INITIALIZED
