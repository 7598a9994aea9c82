"""What the NVIDIA driver reports while a job runs: Xid errors, heard through NVML's events as soon as they happen.

Numbers and what to do about each are those of NVIDIA's "XID Errors" (docs.nvidia.com/deploy/xid-errors). Most come of
what a program did; those of `_OF_THE_DEVICE` leave a GPU that computes nothing more before it is reset or exchanged.
"""

import ctypes
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

LIBRARY = "libnvidia-ml.so.1"
_SUCCESS, _LOST = 0, 15
_XID_EVENT = 0x8
_OF_THE_DEVICE: Mapping[int, str] = {
    48: "a memory error that could not be corrected",
    62: "its micro-controller has halted",
    64: "broken memory rows could not be exchanged",
    74: "an NVLink error",
    79: "it has fallen off the bus",
    95: "a memory error that could not be contained",
    119: "its system processor does not answer",
    120: "its system processor has failed",
    140: "an unrecovered memory error",
}
_PASSING: Mapping[int, str] = {
    13: "an exception in a program's kernel",
    31: "a program touched memory that is not its own",
    43: "a program's channel was reset",
    45: "a program's work was taken off it",
    63: "broken memory rows will be exchanged at its next reset",
    94: "a memory error that was contained: its program has to begin anew",
}


@dataclass(frozen=True)
class Xid:
    """One error."""

    gpu: int
    number: int
    """0: the driver has lost the device."""

    @property
    def is_of_the_device(self) -> bool:
        """The GPU is no good any more, whatever the program."""
        return self.number == 0 or self.number in _OF_THE_DEVICE

    @property
    def message(self) -> str:
        """For people."""
        if self.number == 0:
            return f"GPU {self.gpu} is lost"
        meaning = _OF_THE_DEVICE.get(self.number) or _PASSING.get(self.number) or "see NVIDIA's list of Xid errors"
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
    """Hears the errors of some GPUs. Calls block; `wait` may be called from a thread."""

    def __init__(self, library: Any, events: ctypes.c_void_p, gpus: Mapping[int, int]) -> None:
        """`gpus`: the driver's handle of each → its index. Use `open`."""
        self._library, self._events, self._gpus = library, events, gpus

    @classmethod
    def open(cls, indexes: Iterable[int], library: Any = None) -> Self | None:
        """Begin to listen; None where there is no driver, or it has no such events."""
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
        watch = cls(library, events, gpus)
        if not gpus:
            watch.close()
            return None
        return watch

    def wait(self, within_s: float) -> Xid | None:
        """The next error, if one comes in time."""
        event = _Event()
        code = self._library.nvmlEventSetWait_v2(self._events, ctypes.byref(event), ctypes.c_uint(int(1000 * within_s)))
        gpu = self._gpus.get(event.device or 0, min(self._gpus.values()))
        if code == _SUCCESS and event.kind == _XID_EVENT:
            return Xid(gpu, int(event.data))
        return Xid(gpu, 0) if code == _LOST else None

    def close(self) -> None:
        """Listen no longer."""
        self._library.nvmlEventSetFree(self._events)
        self._library.nvmlShutdown()
