"""Facts of GPUs: with the real library on a machine without a driver, and with a library in Python."""

# ruff: noqa: N802  # the library's own names

import ctypes
from typing import Any

import pynvml
import pytest

from regroup.workers.os import nvml
from regroup.workers.os.nvml_events import LOST as LOST_DEVICE
from regroup.workers.os.nvml_events import XidEvents
from tests.support.nvml_library import LOST, NOT_SUPPORTED, SUCCESS, TIMEOUT, Library, install


@pytest.fixture
def no_driver() -> None:
    """Skip on a machine with a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return
    pynvml.nvmlShutdown()
    pytest.skip("this machine has an NVIDIA driver")


@pytest.mark.usefixtures("no_driver")
def test_a_node_without_a_driver_has_no_gpus_and_no_faults() -> None:
    with nvml.driver() as has_driver:
        assert not has_driver
    assert nvml.broken([0, 1]) == ([], [])
    assert XidEvents.open([0]) is None


class Silent(Library):
    """A driver that does not answer."""

    def nvmlInitWithFlags(self, flags: int) -> int:
        return 999


def test_a_driver_that_does_not_answer_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    install(Silent(1), monkeypatch)
    (failure,), notes = nvml.broken([0])
    assert failure.startswith("the NVIDIA driver does not answer") and notes == []
    assert XidEvents.open([0]) is None


class Worn(Library):
    """Devices with broken rows: device 0 needs a reset, 1 has no spare rows, 2 had errors, 3 reports nothing."""

    def nvmlDeviceGetRemappedRows(self, handle: Any, *places: Any) -> int:
        index = address_of(handle) - 100
        pending, failure = places[2:]
        pending._obj.value, failure._obj.value = int(index < 2), int(index == 1)
        return NOT_SUPPORTED if index == 3 else SUCCESS

    def nvmlDeviceGetTotalEccErrors(self, handle: Any, kind: Any, counter: Any, count: Any) -> int:
        assert (kind.value, counter.value) == (1, 0), "uncorrected, since the driver was loaded"
        count._obj.value = 7 if address_of(handle) == 102 else 0
        return NOT_SUPPORTED if address_of(handle) == 103 else SUCCESS


def test_broken_memory_is_a_fault_and_errors_are_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Worn(4)
    install(library, monkeypatch)
    failures, notes = nvml.broken([0, 1, 2, 3, 4])
    assert failures == [
        "GPU 0 needs a reset to remap broken memory rows",
        "GPU 1 has broken memory rows and no spare rows left: replace the GPU",
        "GPU 4 is lost: the driver returns no handle for it (Not Found)",
    ]
    assert notes == ["GPU 2 has had 7 uncorrectable memory errors since its driver was loaded"]
    assert library.open == 0


class WithEvents(Library):
    """Two devices that report the given events: code, index of the device, kind, data."""

    def __init__(self, *events: tuple[int, int, int, int], registration: int = SUCCESS) -> None:
        super().__init__(2)
        self.events, self.registration = list(events), registration

    def nvmlEventSetCreate(self, events: Any) -> int:
        self.open += 1
        return SUCCESS

    def nvmlEventSetFree(self, events: Any) -> int:
        self.open -= 1
        return SUCCESS

    def nvmlDeviceRegisterEvents(self, handle: Any, kinds: Any, events: Any) -> int:
        assert kinds.value == 8
        return self.registration

    def nvmlEventSetWait_v2(self, events: Any, event: Any, timeout_ms: Any) -> int:
        code, index, kind, data = self.events.pop(0)
        ctypes.c_void_p.from_buffer(event._obj).value = 100 + index
        event._obj.eventType, event._obj.eventData = kind, data
        return code


def test_events_name_the_gpu_and_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    install(WithEvents((SUCCESS, 1, 8, 79), (TIMEOUT, 0, 0, 0), (SUCCESS, 0, 2, 1), (LOST, 0, 0, 0)), monkeypatch)
    events = XidEvents.open([0, 1])
    assert events is not None
    assert [events.next(0.001) for _ in range(4)] == [(1, 79), None, None, (0, LOST_DEVICE)]


def test_without_events_nothing_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    for library, indexes in ((WithEvents(registration=NOT_SUPPORTED), [0]), (WithEvents(), [5])):
        install(library, monkeypatch)
        assert XidEvents.open(indexes) is None and library.open == 0
    install(library := WithEvents(), monkeypatch)
    events = XidEvents.open([0])
    assert events is not None and library.open == 2
    events.close()
    assert library.open == 0


def address_of(handle: Any) -> int:
    """Return the address in a handle."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
