"""Device topology of a node, from kernel files and from a driver."""

import ctypes
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.os import device_topology

BUS = "0000:1b:00.0"


@pytest.fixture
def sysfs(tmp_path: Path) -> tuple[Path, Path]:
    """Two NUMA nodes, of which one is without cores, and a GPU at the second."""
    nodes, devices = tmp_path / "node", tmp_path / "devices"
    for name, cores in (("node0", "0-15,32-47\n"), ("node1", "16-31,48-63\n"), ("node10", "\n")):
        (nodes / name).mkdir(parents=True)
        (nodes / name / "cpulist").write_text(cores)
    (nodes / "possible").write_text("0-10\n")
    (devices / BUS).mkdir(parents=True)
    (devices / BUS / "numa_node").write_text("1\n")
    return nodes, devices


def test_numa_nodes_are_read_in_their_order(sysfs: tuple[Path, Path]) -> None:
    assert device_topology.read(*sysfs)["numa"] == [[0, "0-15,32-47"], [1, "16-31,48-63"], [10, ""]]


def test_a_machine_that_tells_nothing_has_nothing(tmp_path: Path) -> None:
    assert device_topology.read(tmp_path / "none", tmp_path / "none")["numa"] == []


def test_this_machine_tells_what_it_has() -> None:
    found = device_topology.read()
    assert all(isinstance(number, int) and listed for number, listed in found["numa"])
    assert found["fabric"] == "" or found["gpus"]


class Recorded:
    """The driver's library of one GPU, with what it answered on a machine: an NVLink to GPU 2b:00.0, one that is
    down, one to a POWER9 and two to switches."""

    def nvmlDeviceGetPciInfo_v3(self, handle: Any, place: Any) -> int:  # noqa: N802
        place._obj.bus = 0x1B
        return 0

    def nvmlDeviceGetNvLinkState(self, handle: Any, number: Any, is_up: Any) -> int:  # noqa: N802
        is_up._obj.value = int(number.value != 1)
        return 0 if number.value < 5 else 2

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: Any, number: Any, kind: Any) -> int:  # noqa: N802
        kind._obj.value = {0: 0, 2: 1, 3: 2, 4: 2}[number.value]
        return 0

    def nvmlDeviceGetNvLinkRemotePciInfo_v2(self, handle: Any, number: Any, other: Any) -> int:  # noqa: N802
        other._obj.bus = 0x2B
        return 0


def test_links_that_are_up_lead_to_gpus_and_switches(sysfs: tuple[Path, Path]) -> None:
    found = device_topology._gpu(Recorded(), 5, ctypes.c_void_p(), sysfs[1])  # type: ignore[arg-type]
    assert found == {"index": 5, "bus": BUS, "numa": 1, "links": ["0000:2b:00.0"], "switches": 2}
