"""A library of the NVIDIA driver in Python: the real `pynvml` calls it in place of `libnvidia-ml.so.1`.

No machine of the tests has a GPU that breaks on request. A test subclasses `Library` with the functions that it needs;
`pynvml` reports any other function as not found, as with an old driver.
"""

# ruff: noqa: N802  # the library's own names

import ctypes
from typing import Any

import pynvml
import pytest

SUCCESS, NOT_SUPPORTED, NOT_FOUND, TIMEOUT, LOST = 0, 3, 6, 10, 15
FIRST_HANDLE = 100


class Library:
    """NVML with some devices. Their handles count from 100."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.open = 0
        """Number of open sessions, and of other resources that a subclass counts."""

    def nvmlInitWithFlags(self, flags: int) -> int:
        self.open += 1
        return SUCCESS

    def nvmlShutdown(self) -> int:
        self.open -= 1
        return SUCCESS

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = self.devices
        return SUCCESS

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        set_pointer(handle, FIRST_HANDLE + index.value)
        return SUCCESS if index.value < self.devices else NOT_FOUND


def set_pointer(reference: Any, address: int) -> None:
    """Write an address to the start of the object that a reference of ctypes refers to."""
    ctypes.c_void_p.from_buffer(reference._obj).value = address


def install(library: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `pynvml` use this library until the end of the test."""
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
