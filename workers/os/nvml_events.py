"""Xid errors of GPUs, as NVML reports them: an event that the driver sends at once. Calls block."""

import ctypes
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from typing import Any, Self

from regroup.workers.os import nvml

LOST = 0
"""Number of the error that the driver has lost the device."""


class XidEvents:
    """Events of some GPUs. Use `open`. A thread may call `next` at any time before `close`."""

    def __init__(self, library: Any, events: Any, gpus: Mapping[int, int], resources: ExitStack) -> None:
        """`gpus` maps the address of each handle of the driver to the index of the GPU."""
        self._nvml, self._events, self._gpus, self._resources = library, events, gpus, resources

    @classmethod
    def open(cls, indexes: Iterable[int]) -> Self | None:
        """Subscribe to the errors of these GPUs; return None without a driver, or if it supports no events."""
        library: Any = nvml.pynvml
        if library is None:
            return None
        with ExitStack() as resources, suppress(nvml.NvmlError, library.NVMLError):
            if not resources.enter_context(nvml.driver()):
                return None
            events = library.nvmlEventSetCreate()
            resources.callback(library.nvmlEventSetFree, events)
            gpus: dict[int, int] = {}
            for index in indexes:
                with suppress(nvml.NvmlError, library.NVMLError):
                    handle = nvml.gpu(index).handle
                    library.nvmlDeviceRegisterEvents(handle, library.nvmlEventTypeXidCriticalError, events)
                    gpus[_address(handle)] = index
            if gpus:
                return cls(library, events, gpus, resources.pop_all())
        return None

    def next(self, timeout_s: float) -> tuple[int, int] | None:
        """Return the GPU's index and the number of the next error, or `LOST`; None if none arrives in time."""
        any_gpu = min(self._gpus.values())
        try:
            event = self._nvml.nvmlEventSetWait_v2(self._events, int(1000 * timeout_s))
        except self._nvml.NVMLError_GpuIsLost:
            return any_gpu, LOST
        except self._nvml.NVMLError:
            return None
        if event.eventType != self._nvml.nvmlEventTypeXidCriticalError:
            return None
        return self._gpus.get(_address(event.device), any_gpu), int(event.eventData)

    def close(self) -> None:
        """End the subscription."""
        self._resources.close()


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
