"""Islands of devices within nodes, from readings of real machines."""

from typing import Any

import pytest

from regroup.service.domain.topology import DEFAULT_LABELS, MACHINE_LABEL, Level, Node
from regroup.service.policy.topology.device_islands import Island, find_islands, with_fabrics

NUMA = [[0, "0-55,112-167"], [1, "56-111,168-223"]]


def bus(index: int) -> str:
    return f"0000:{0x10 + index:02x}:00.0"


def gpu(index: int, numa: int, links: tuple[int, ...] = (), switches: int = 0) -> dict[str, Any]:
    return {"index": index, "bus": bus(index), "numa": numa, "links": [bus(to) for to in links], "switches": switches}


DGX_H100 = {"numa": NUMA, "gpus": [gpu(at, at // 4, switches=18) for at in range(8)], "fabric": ""}
CUBE_MESH = {0: (1, 2, 3, 3, 4, 4), 1: (0, 2, 2, 3, 5, 5), 2: (0, 1, 1, 3, 3, 6), 3: (0, 0, 1, 2, 2, 7),
             4: (0, 0, 5, 6, 7, 7), 5: (1, 1, 4, 6, 6, 7), 6: (2, 4, 5, 5, 7, 7), 7: (3, 4, 4, 5, 6, 6)}  # fmt: skip
DGX_1 = {"numa": NUMA, "gpus": [gpu(at, at // 4, CUBE_MESH[at]) for at in range(8)], "fabric": ""}
BRIDGED = {"numa": NUMA, "gpus": [gpu(at, at // 2, (at ^ 1,)) for at in range(4)], "fabric": ""}
L40S = {"numa": NUMA, "gpus": [gpu(at, at // 4) for at in range(8)], "fabric": ""}
CLOUD = {"numa": [[0, "0-47"]], "gpus": [gpu(0, -1), gpu(1, -1)], "fabric": ""}


@pytest.mark.parametrize(
    ("machine", "found"),
    [
        (DGX_H100, [("nvswitch", tuple(range(8)), (0, 1))]),
        (DGX_1, [("nvlink", tuple(range(8)), (0, 1))]),
        (BRIDGED, [("nvlink", (0, 1), (0,)), ("nvlink", (2, 3), (1,))]),
        (L40S, [("numa", (0, 1, 2, 3), (0,)), ("numa", (4, 5, 6, 7), (1,))]),
        (CLOUD, [("numa", (0, 1), ())]),
    ],
)
def test_devices_that_are_linked_directly_form_an_island(machine: dict[str, Any], found: list[Any]) -> None:
    assert [(each.link, each.gpus, each.numa) for each in find_islands(machine)] == found


def test_the_islands_of_a_node_without_gpus_are_its_numa_nodes() -> None:
    assert find_islands({"numa": NUMA, "gpus": [], "fabric": ""}) == (
        Island("numa", (), (0,), NUMA[0][1]), Island("numa", (), (1,), NUMA[1][1]),
    )  # fmt: skip


def test_a_fabric_is_the_gpu_domain_of_nodes_without_a_label() -> None:
    labels = {DEFAULT_LABELS[Level.GPU_DOMAIN]: "label", MACHINE_LABEL: "b"}
    nodes = [Node("1", "a", ""), Node("2", "pod-7", "", labels=labels), Node("3", "c", "", domains=("z", "", "r", ""))]
    placed = with_fabrics(nodes, {"a": "f.1", "b": "f.1", "c": "f.1"})
    assert [node.domains for node in placed] == [("", "", "", "f.1"), (), ("z", "", "r", "f.1")]
    assert with_fabrics(nodes, {}) == nodes
