"""What the driver knows of GPUs, where there is one: memory that is broken for good, or that waits for a reset.

Through NVML's own library, by ctypes: nothing has to be installed, and no CUDA context is made.
"""

import ctypes
from collections.abc import Iterable

_SUCCESS = 0
_UNCORRECTED, _SINCE_START = 1, 0


def broken(indexes: Iterable[int]) -> tuple[list[str], list[str]]:
    """What is wrong with these GPUs, and what a person may want to know of them; nothing where there is no driver."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return [], []
    if library.nvmlInit_v2() != _SUCCESS:
        return ["the NVIDIA driver does not answer"], []
    try:
        failed, notes = list[str](), list[str]()
        for index in indexes:
            _look(library, index, failed, notes)
        return failed, notes
    finally:
        library.nvmlShutdown()


def _look(library: ctypes.CDLL, index: int, failed: list[str], notes: list[str]) -> None:
    device = ctypes.c_void_p()
    if (code := library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device))) != _SUCCESS:
        failed.append(f"GPU {index} is lost: the driver gives no handle of it (NVML error {code})")
        return
    corrected, uncorrected, pending, failure = (ctypes.c_uint() for _ in range(4))
    places = [ctypes.byref(place) for place in (corrected, uncorrected, pending, failure)]
    if library.nvmlDeviceGetRemappedRows(device, *places) == _SUCCESS:
        if failure.value:
            failed.append(f"GPU {index} has broken memory rows and none left to take their place: exchange it")
        elif pending.value:
            failed.append(f"GPU {index} waits for a reset to exchange broken memory rows")
    errors = ctypes.c_ulonglong()
    count = library.nvmlDeviceGetTotalEccErrors(device, _UNCORRECTED, _SINCE_START, ctypes.byref(errors))
    if count == _SUCCESS and errors.value:
        notes.append(f"GPU {index} had {errors.value} uncorrectable memory errors since its driver was loaded")
