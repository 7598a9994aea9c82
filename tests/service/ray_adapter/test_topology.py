"""Labels of real Ray nodes, and the placement of gangs by these labels."""

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from regroup.service.cluster_state.topology import Topology
from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import Level, Node
from regroup.service.local import ray_cluster
from regroup.service.policy.placement.place import Demand, Placement, Shortage, Unplaceable, place
from regroup.service.policy.placement.traffic import UNKNOWN_WORK, axes
from regroup.service.ports.cluster import Reservation
from regroup.service.ray_adapter.cluster import RayCluster
from regroup.service.settings import Settings

pytestmark = pytest.mark.slow
LABELS = {
    2: "ray.io/gpu-domain=nvl0,my/rack=r0,regroup.io/block=b0",
    3: "ray.io/gpu-domain=nvl0,my/rack=r0,regroup.io/block=b0",
    4: "ray.io/gpu-domain=nvl1,my/rack=r1,regroup.io/block=b0",
    5: "ray.io/gpu-domain=nvl1,my/rack=r1,regroup.io/block=b1",
}
"""Number → labels of each node after the first. The block of the last one contradicts its rack."""


@pytest.fixture
def settings() -> Iterator[Settings]:
    folder = Path(tempfile.mkdtemp(prefix="rgt-", dir="/tmp"))
    yield Settings(
        state_dir=folder, local_nodes=1, slots_per_node=2, local_gpus_per_node=2, topology_labels={"rack": "my/rack"}
    )
    ray_cluster.stop(folder)
    shutil.rmtree(folder)


def demand(layout: Layout, **fields: object) -> Demand:
    return replace(Demand(layout.world_size, layout.tp, "cuda", 1, axes=axes(layout, UNKNOWN_WORK)), **fields)


async def test_gangs_are_placed_by_the_labels_of_ray_nodes(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    started = ray_cluster.start(settings)
    nodes = [ray_cluster._training_node(settings, started, number) for number in LABELS]
    labelled = [
        replace(node, flags=[f"{flag},{LABELS[number]}" if "--labels" in flag else flag for flag in node.flags])
        for number, node in zip(LABELS, nodes, strict=True)
    ]
    labels = dict(each.split("=") for each in LABELS[2].split(","))
    (settings.state_dir / "labels.json").write_text(json.dumps(labels))  # As on Kubernetes, in addition to the flags.
    labelled[0] = replace(nodes[0], flags=[*nodes[0].flags, f"--labels-file={settings.state_dir / 'labels.json'}"])
    await asyncio.to_thread(ray_cluster._ray_start, settings, started, labelled)
    for name, value in ray_cluster.ray_environment(settings.ray_token_path).items():
        monkeypatch.setitem(os.environ, name, value)
    topology = Topology(settings)
    cluster = await RayCluster.connect(started.address, topology=topology)
    try:
        nodes_by_name = await _wait_for_nodes(cluster)
        assert (
            nodes_by_name["local-2"].domains == ("", "b0", "r0", "nvl0")
            and nodes_by_name["local-1"].domains == ("",) * 4
        )
        problems = topology.state(list(nodes_by_name.values())).problems
        assert any("rack 'r1' is in block 'b0' (local-4) and block 'b1' (local-5)" in each for each in problems)
        assert any("local-1: no rack is known" in each for each in problems)
        await _check_disjoint_gangs(cluster, list(nodes_by_name.values()))
    finally:
        await cluster.close()


async def _wait_for_nodes(cluster: RayCluster) -> dict[str, Node]:
    """Wait until Ray lists all nodes, which takes a moment after their start."""
    async with asyncio.timeout(30):
        while True:
            nodes_by_name = {node.name: node for node in await cluster.nodes() if not node.is_control}
            if len(nodes_by_name) == len(LABELS) + 1:
                return nodes_by_name
            await asyncio.sleep(0.1)


async def _check_disjoint_gangs(cluster: RayCluster, nodes: list[Node]) -> None:
    """Check that a TP group of four uses both nodes of a GPU domain only if the demand allows it."""
    torn = place(demand(Layout(tp=4)), nodes)
    assert isinstance(torn, Unplaceable) and torn.reason is Shortage.TOO_LARGE
    first = place(demand(Layout(tp=4), segment_within=Level.GPU_DOMAIN), nodes)
    assert isinstance(first, Placement)
    assert {slot.node.name for slot in first.slots} == {"local-2", "local-3"}, (
        "the labels of the other domain contradict each other"
    )
    reservations = [
        Reservation(f"regroup-reservation:a:{slot.node.id[:8]}:0", "a", slot.node.id, slot.ranks, "cuda", slot.ranks)
        for slot in first.slots
    ]
    devices = await asyncio.gather(*(cluster.create_reservation(reservation) for reservation in reservations))
    assert [sorted(each) for each in devices] == [[0, 1], [0, 1]]
    left: list[Node] = []
    async with asyncio.timeout(10):
        while sum(node.free_gpus for node in left) != 6:
            await asyncio.sleep(0.05)  # Ray needs a moment to update free resources.
            left = list(await cluster.nodes())
    pairs = place(demand(Layout(tp=2, dp_shard=3)), left)
    assert isinstance(pairs, Placement) and {slot.ranks for slot in pairs.slots} == {2}
    assert {slot.node.name for slot in pairs.slots} == {"local-1", "local-4", "local-5"}
    refused = place(demand(Layout(tp=2, dp_shard=2), required=Level.RACK), left)
    assert isinstance(refused, Unplaceable) and "the rack with most of them has 2" in refused.message
