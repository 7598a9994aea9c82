"""Facts of GPUs: with the real library on a machine without a driver, and with a library in Python."""

# ruff: noqa: N802  # the library's own names

import ctypes
from typing import Any

import pynvml
import pytest

from regroup.workers.os import nvml
from regroup.workers.os.nvml_events import XidEvents
from tests.support.machines.nvml_library import NOT_SUPPORTED, SUCCESS, Library, install


@pytest.fixture
def no_driver() -> None:
    """Skip on a machine with a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
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


class Named(Library):
    """Devices with UUIDs."""

    def nvmlDeviceGetUUID(self, handle: Any, uuid: Any, length: Any) -> int:
        ctypes.memmove(uuid, f"GPU-{address_of(handle) - 100}a5".encode() + b"\0", 8)
        return SUCCESS


def test_a_number_is_an_index_without_a_driver() -> None:
    assert nvml.index_of("3") == 3


def test_a_uuid_or_its_beginning_names_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    install(Named(3), monkeypatch)
    assert (nvml.index_of("GPU-1a5"), nvml.index_of("GPU-2")) == (1, 2)
    with pytest.raises(nvml.NvmlError, match="'GPU-', and 3 of its GPUs have such a UUID"):
        nvml.index_of("GPU-")
    with pytest.raises(nvml.NvmlError, match="'GPU-7', and 0 of its GPUs"):
        nvml.index_of("GPU-7")


def test_a_part_of_a_gpu_is_refused_with_the_remedy() -> None:
    with pytest.raises(nvml.NvmlError, match=r"MIG-1234 is a part of a GPU \(MIG\).* turn MIG off"):
        nvml.index_of("MIG-1234")


def address_of(handle: Any) -> int:
    """Return the address in a handle."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
