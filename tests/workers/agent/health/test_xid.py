"""Xid errors: received at once, separated from errors of programs, and retained while the device is faulty.

No GPU fails on demand, so a fake driver library replays readings as NVML returns them.
"""

# ruff: noqa: N802  # the library's own names

import asyncio
import ctypes
from collections.abc import Sequence
from typing import Any

import pytest

from regroup.workers.agent.health import gpu_errors
from regroup.workers.agent.health.gpu_errors import GpuErrors
from regroup.workers.agent.health.resource_pressure import Readings
from regroup.workers.agent.health.xid import Xid, XidMonitor
from tests.support.machines.nvml_library import (
    FIRST_HANDLE,
    LOST,
    NOT_SUPPORTED,
    SUCCESS,
    TIMEOUT,
    Library,
    install,
    set_pointer,
)

Reading = tuple[int, int, int, int]
"""Return code of nvmlEventSetWait_v2, index of the device, kind and data of the event."""
NO_EVENT: Reading = (TIMEOUT, 0, 0, 0)


class Driver(Library):
    """NVML with two devices, whose handles are 100 and 101."""

    def __init__(self, readings: Sequence[Reading] = (), registration: int = SUCCESS) -> None:
        super().__init__(2)
        self.readings, self.registration = list(readings), registration

    def nvmlEventSetCreate(self, events: Any) -> int:
        self.open += 1
        set_pointer(events, 7)
        return SUCCESS

    def nvmlEventSetFree(self, events: Any) -> int:
        self.open -= 1
        return SUCCESS

    def nvmlDeviceRegisterEvents(self, device: Any, kinds: Any, events: Any) -> int:
        assert kinds.value == 8 and ctypes.cast(events, ctypes.c_void_p).value == 7
        return self.registration

    def nvmlEventSetWait_v2(self, events: Any, event: Any, timeout_ms: Any) -> int:
        code, index, kind, data = self.readings.pop(0) if self.readings else NO_EVENT
        set_pointer(event, FIRST_HANDLE + index)
        event._obj.eventType, event._obj.eventData = kind, data
        return code


def received(monkeypatch: pytest.MonkeyPatch, *readings: Reading) -> list[Xid | None]:
    install(Driver(readings), monkeypatch)
    monitor = XidMonitor.open([0, 1])
    assert monitor is not None
    return [monitor.wait(0.001) for _ in readings]


def test_an_error_is_received_with_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert received(monkeypatch, (0, 1, 8, 79), NO_EVENT, (0, 0, 8, 31)) == [Xid(1, 79), None, Xid(0, 31)]
    assert received(monkeypatch, (0, 0, 2, 1)) == [None], "events of other kinds are ignored"
    assert received(monkeypatch, (LOST, 0, 0, 0)) == [Xid(0, 0)]


@pytest.mark.parametrize(
    ("number", "is_device_fault", "words"),
    [
        (79, True, "GPU 1: Xid 79, the GPU has fallen off the bus"),
        (48, True, "uncorrectable"),
        (95, True, "uncontained"),
        (119, True, "does not answer"),
        (0, True, "GPU 1 is lost"),
        (94, False, "the program must restart"),
        (31, False, "a program accessed memory"),
        (13, False, "a kernel of a program"),
        (999, False, "see NVIDIA's list"),
    ],
)
def test_errors_of_programs_are_not_device_faults(number: int, is_device_fault: bool, words: str) -> None:
    error = Xid(1, number)
    assert error.is_device_fault is is_device_fault
    assert words in error.message


def test_the_library_is_closed_if_no_gpu_supports_events(monkeypatch: pytest.MonkeyPatch) -> None:
    for driver, indexes in ((Driver(registration=NOT_SUPPORTED), [0]), (Driver(), [5])):
        install(driver, monkeypatch)
        assert XidMonitor.open(indexes) is None and driver.open == 0
    install(driver := Driver(), monkeypatch)
    monitor = XidMonitor.open([0])
    assert monitor is not None and driver.open == 2
    monitor.close()
    assert driver.open == 0


async def test_errors_arrive_at_once_and_device_faults_are_retained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_errors, "_WAIT_S", 0.001)
    driver = Driver([NO_EVENT, (0, 0, 8, 31), (0, 1, 8, 79), (0, 1, 8, 79)])
    install(driver, monkeypatch)
    errors = GpuErrors()
    readings = Readings(1, 2)
    assert errors.poll([]) == [] and driver.open == 0, "a job without GPUs opens nothing"
    assert errors.poll([0, 1]) == []
    new: list[Xid] = []
    async with asyncio.timeout(10):
        while len(new) < 3:
            await errors.wait(60)
            new += errors.poll([0, 1])
    assert new == [Xid(0, 31), Xid(1, 79), Xid(1, 79)]
    for _ in range(2):
        assert errors.add_to(readings).broken_gpus == ("GPU 1: Xid 79, the GPU has fallen off the bus",)
    errors.close()
