"""Errors that a GPU's driver reports: heard, told from those of programs, kept while the device is no good.

There is no GPU here that breaks on demand: the driver's library is played back from readings as NVML gives them.
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

TIMEOUT, LOST, UNSUPPORTED = 10, 15, 3
Reading = tuple[int, int, int, int]
"""Return code of nvmlEventSetWait_v2, index of the device, kind and data of the event."""
QUIET: Reading = (TIMEOUT, 0, 0, 0)


class Driver:
    """NVML with two devices, whose handles are 100 and 101."""

    def __init__(self, readings: Sequence[Reading] = (), register: int = 0) -> None:
        self.readings, self.register = list(readings), register
        self.open = 0

    def nvmlInit_v2(self) -> int:
        self.open += 1
        return 0

    def nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def nvmlEventSetCreate(self, events: Any) -> int:
        self.open += 1
        events._obj.value = 7
        return 0

    def nvmlEventSetFree(self, events: Any) -> int:
        self.open -= 1
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, device: Any) -> int:
        device._obj.value = 100 + index.value
        return 0 if index.value < 2 else 2

    def nvmlDeviceRegisterEvents(self, device: Any, kinds: Any, events: Any) -> int:
        assert kinds.value == 8 and events.value == 7
        return self.register

    def nvmlEventSetWait_v2(self, events: Any, event: Any, timeout_ms: Any) -> int:
        code, index, kind, data = self.readings.pop(0) if self.readings else QUIET
        event._obj.device, event._obj.kind, event._obj.data = ctypes.c_void_p(100 + index), kind, data
        return code


def heard(*readings: Reading) -> list[Xid | None]:
    watch = XidMonitor.open([0, 1], Driver(readings))
    assert watch is not None
    return [watch.wait(0.001) for _ in readings]


def test_an_error_is_heard_with_its_device() -> None:
    assert heard((0, 1, 8, 79), QUIET, (0, 0, 8, 31)) == [Xid(1, 79), None, Xid(0, 31)]
    assert heard((0, 0, 2, 1)) == [None], "events of other kinds were not asked for"
    assert heard((LOST, 0, 0, 0)) == [Xid(0, 0)]


@pytest.mark.parametrize(
    ("number", "is_of_the_device", "says"),
    [
        (79, True, "GPU 1: Xid 79, it has fallen off the bus"),
        (48, True, "could not be corrected"),
        (95, True, "could not be contained"),
        (119, True, "does not answer"),
        (0, True, "GPU 1 is lost"),
        (94, False, "was contained"),
        (31, False, "a program touched memory"),
        (13, False, "a program's kernel"),
        (999, False, "see NVIDIA's list"),
    ],
)
def test_what_a_program_did_is_no_fault_of_the_device(number: int, is_of_the_device: bool, says: str) -> None:
    error = Xid(1, number)
    assert error.is_of_the_device is is_of_the_device
    assert says in error.message


def test_without_events_there_is_nothing_to_hear_and_nothing_is_left_open() -> None:
    driver = Driver(register=UNSUPPORTED)
    assert XidMonitor.open([0], driver) is None and driver.open == 0
    assert XidMonitor.open([5], driver := Driver()) is None and driver.open == 0
    watch = XidMonitor.open([0], driver := Driver())
    assert watch is not None and driver.open == 2
    watch.close()
    assert driver.open == 0


async def test_an_agent_hears_at_once_and_keeps_what_is_no_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_errors, "_WAIT_S", 0.001)
    driver = Driver([QUIET, (0, 0, 8, 31), (0, 1, 8, 79), (0, 1, 8, 79)])
    errors = GpuErrors(lambda gpus: XidMonitor.open(gpus, driver))
    seen = Readings(1, 2)
    assert errors.heard([]) == [] and driver.open == 0, "a job without GPUs opens nothing"
    assert errors.heard([0, 1]) == []
    told: list[Xid] = []
    async with asyncio.timeout(10):
        while len(told) < 3:
            await errors.pause(60)
            told += errors.heard([0, 1])
    assert told == [Xid(0, 31), Xid(1, 79), Xid(1, 79)]
    for _ in range(2):
        assert errors.added_to(seen).broken_gpus == ("GPU 1: Xid 79, it has fallen off the bus",)
    errors.close()
