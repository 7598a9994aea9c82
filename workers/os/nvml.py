"""GPU memory faults that the driver reports: rows that are broken, and rows that need a reset.

Uses NVML's own library through ctypes. It needs no package, and it creates no CUDA context.
"""

import ctypes
from collections.abc import Iterable

_SUCCESS = 0
_UNCORRECTED, _SINCE_START = 1, 0


def broken(indexes: Iterable[int]) -> tuple[list[str], list[str]]:
    """Return the failures of these GPUs and notes for people; both are empty without a driver."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return [], []
    if library.nvmlInit_v2() != _SUCCESS:
        return ["the NVIDIA driver does not answer"], []
    try:
        failed, notes = list[str](), list[str]()
        for index in indexes:
            _check(library, index, failed, notes)
        return failed, notes
    finally:
        library.nvmlShutdown()


def _check(library: ctypes.CDLL, index: int, failed: list[str], notes: list[str]) -> None:
    device = ctypes.c_void_p()
    if (code := library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device))) != _SUCCESS:
        failed.append(f"GPU {index} is lost: the driver returns no handle for it (NVML error {code})")
        return
    corrected, uncorrected, pending, failure = (ctypes.c_uint() for _ in range(4))
    places = [ctypes.byref(place) for place in (corrected, uncorrected, pending, failure)]
    if library.nvmlDeviceGetRemappedRows(device, *places) == _SUCCESS:
        if failure.value:
            failed.append(f"GPU {index} has broken memory rows and no spare rows left: replace the GPU")
        elif pending.value:
            failed.append(f"GPU {index} needs a reset to remap broken memory rows")
    errors = ctypes.c_ulonglong()
    count = library.nvmlDeviceGetTotalEccErrors(device, _UNCORRECTED, _SINCE_START, ctypes.byref(errors))
    if count == _SUCCESS and errors.value:
        notes.append(f"GPU {index} has had {errors.value} uncorrectable memory errors since its driver was loaded")
