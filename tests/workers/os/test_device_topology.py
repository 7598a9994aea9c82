"""Device topology of a node, from kernel files and from a driver."""

# ruff: noqa: N802  # the library's own names

from pathlib import Path
from typing import Any

import pytest

from regroup.workers.os import device_topology
from tests.support.machines.nvml_library import SUCCESS, Library, install

BUS = "0000:1b:00.0"
INVALID = 2


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


def test_a_machine_without_kernel_files_has_no_numa_nodes(tmp_path: Path) -> None:
    assert device_topology.read(tmp_path / "none", tmp_path / "none")["numa"] == []


def test_this_machine_has_a_valid_topology() -> None:
    found = device_topology.read()
    assert all(isinstance(number, int) and listed for number, listed in found["numa"])
    assert found["fabric"] == "" or found["gpus"]


class Linked(Library):
    """One GPU with the answers of a machine: an NVLink to GPU 2b:00.0, one that is down, one to a POWER9, and two to
    switches. Its driver is too old for fabrics.
    """

    def nvmlDeviceGetPciInfo_v3(self, handle: Any, place: Any) -> int:
        place._obj.bus = 0x1B
        return SUCCESS

    def nvmlDeviceGetNvLinkState(self, handle: Any, number: int, is_up: Any) -> int:
        is_up._obj.value = int(number != 1)
        return SUCCESS if number < 5 else INVALID

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: Any, number: int, kind: Any) -> int:
        kind._obj.value = {0: 0, 2: 1, 3: 2, 4: 2}[number]
        return SUCCESS

    def nvmlDeviceGetNvLinkRemotePciInfo_v2(self, handle: Any, number: int, other: Any) -> int:
        other._obj.bus = 0x2B
        return SUCCESS


class Joined(Linked):
    """The same GPU in a fabric."""

    def nvmlDeviceGetGpuFabricInfo(self, handle: Any, info: Any) -> int:
        info._obj.clusterUuid[0], info._obj.cliqueId, info._obj.state = 0xAB, 5, 3
        return SUCCESS


def test_links_that_are_up_lead_to_gpus_and_switches(sysfs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    install(library := Linked(1), monkeypatch)
    found = device_topology.read(*sysfs)
    assert found["gpus"] == [{"index": 0, "bus": BUS, "numa": 1, "links": ["0000:2b:00.0"], "switches": 2}]
    assert found["fabric"] == "" and library.open == 0


def test_gpus_of_a_fabric_name_its_cluster_and_clique(
    sysfs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(Joined(1), monkeypatch)
    assert device_topology.read(*sysfs)["fabric"] == "ab" + "00" * 15 + ".5"
