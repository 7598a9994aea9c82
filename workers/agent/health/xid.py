"""Xid errors: errors that the NVIDIA driver reports while a job runs, as NVML events.

Numbers and meanings are those of NVIDIA's "XID Errors" (docs.nvidia.com/deploy/xid-errors). A program causes most of
them. After one of `_DEVICE_FAULTS`, the GPU computes nothing until it is reset or replaced.
"""

import ctypes
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

LIBRARY = "libnvidia-ml.so.1"
_SUCCESS, _LOST = 0, 15
_XID_EVENT = 0x8
_DEVICE_FAULTS: Mapping[int, str] = {
    48: "uncorrectable memory error",
    62: "the micro-controller has halted",
    64: "faulty memory rows could not be remapped",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    95: "uncontained memory error",
    119: "the GPU system processor does not answer",
    120: "the GPU system processor has failed",
    140: "unrecovered memory error",
}
_PROGRAM_FAULTS: Mapping[int, str] = {
    13: "exception in a kernel of a program",
    31: "a program accessed memory that does not belong to it",
    43: "the channel of a program was reset",
    45: "the work of a program was removed",
    63: "faulty memory rows will be remapped at the next reset",
    94: "contained memory error: the program must restart",
}


@dataclass(frozen=True)
class Xid:
    """One error."""

    gpu: int
    number: int
    """0: the driver has lost the device."""

    @property
    def is_device_fault(self) -> bool:
        """True if the GPU is faulty, independent of the program."""
        return self.number == 0 or self.number in _DEVICE_FAULTS

    @property
    def message(self) -> str:
        """The error as text for people."""
        if self.number == 0:
            return f"GPU {self.gpu} is lost"
        meaning = (
            _DEVICE_FAULTS.get(self.number) or _PROGRAM_FAULTS.get(self.number) or "see NVIDIA's list of Xid errors"
        )
        return f"GPU {self.gpu}: Xid {self.number}, {meaning}"


class _Event(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_void_p),
        ("kind", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class XidMonitor:
    """Receives the errors of some GPUs. Calls block; `wait` may run in a thread."""

    def __init__(self, library: Any, events: ctypes.c_void_p, gpus: Mapping[int, int]) -> None:
        """Initialize the monitor; use `open` instead. `gpus` maps the driver's handle of a GPU to its index."""
        self._library, self._events, self._gpus = library, events, gpus

    @classmethod
    def open(cls, indexes: Iterable[int], library: Any = None) -> Self | None:
        """Register for the errors of GPUs. Return None if there is no driver or it does not support the events."""
        try:
            library = library or ctypes.CDLL(LIBRARY)
        except OSError:
            return None
        events = ctypes.c_void_p()
        if library.nvmlInit_v2() != _SUCCESS:
            return None
        if library.nvmlEventSetCreate(ctypes.byref(events)) != _SUCCESS:
            library.nvmlShutdown()
            return None
        gpus: dict[int, int] = {}
        for index in indexes:
            device = ctypes.c_void_p()
            if library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)) == _SUCCESS:
                registered = library.nvmlDeviceRegisterEvents(device, ctypes.c_ulonglong(_XID_EVENT), events)
                gpus |= {device.value or 0: index} if registered == _SUCCESS else {}
        monitor = cls(library, events, gpus)
        if not gpus:
            monitor.close()
            return None
        return monitor

    def wait(self, within_s: float) -> Xid | None:
        """Return the next error, or None if none happens in time."""
        event = _Event()
        code = self._library.nvmlEventSetWait_v2(self._events, ctypes.byref(event), ctypes.c_uint(int(1000 * within_s)))
        gpu = self._gpus.get(event.device or 0, min(self._gpus.values()))
        if code == _SUCCESS and event.kind == _XID_EVENT:
            return Xid(gpu, int(event.data))
        return Xid(gpu, 0) if code == _LOST else None

    def close(self) -> None:
        """Unregister."""
        self._library.nvmlEventSetFree(self._events)
        self._library.nvmlShutdown()
