"""The topology of nodes with the API, and the reasons for a job's placement."""

from pathlib import Path
from typing import Any

import pytest

from regroup.api.cli.commands.cluster.topology import tree_lines
from regroup.api.cli.render.why import render_why
from regroup.service.cluster_state.topology import Topology
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.domain.topology import DEFAULT_LABELS, Level
from regroup.service.policy.placement.place import Demand, Placement, place
from regroup.service.policy.topology.hostlist import TopologyError
from regroup.service.ports.cluster import Node
from regroup.service.settings import Settings
from regroup.service.store.rows.records import Allocation, AllocationKind


def node(name: str, rack: str = "", gpus: float = 4) -> Node:
    labels = {DEFAULT_LABELS[Level.RACK]: rack} if rack else {}
    return Node(name * 40, name, "10.0.0.1", cpus=8, free_cpus=8, gpus=gpus, free_gpus=gpus, labels=labels)


async def test_the_tree_shows_free_capacity_and_inconsistencies(live: Any) -> None:
    live.cluster.add_node(Node("c" * 40, "control", "10.0.0.9", is_control=True))
    for each in (node("a", "r1"), node("b", "r1"), node("d")):
        live.cluster.add_node(each)
    found = await live.client(lambda client: client.topology())
    assert list(tree_lines(found.domains)) == [
        ("rack (unknown)", "4/4 GPUs, 8/8 CPUs free"), ("  node d", "4/4 GPUs, 8/8 CPUs free"),
        ("rack r1", "8/8 GPUs, 16/16 CPUs free"), ("  node a", "4/4 GPUs, 8/8 CPUs free"),
        ("  node b", "4/4 GPUs, 8/8 CPUs free"),
    ]  # fmt: skip
    assert found.problems == ["d: no rack is known; each is treated as its own rack"]
    by_level = {level.level: level for level in found.levels}
    assert by_level[Level.RACK].label == "regroup.io/rack"
    assert by_level[Level.BLOCK].link.bytes_per_s < by_level[Level.NODE].link.bytes_per_s


async def test_why_shows_the_placement_and_its_alternatives(live: Any) -> None:
    nodes = [node("a", "r1"), node("b", "r1"), node("d", "r2")]
    placed = place(Demand(8, 1, "cuda", 1), nodes)
    assert isinstance(placed, Placement) and placed.choice is not None
    job = await live.submit()
    plan = {"layout": {}, "attempt": 0, "choice": placed.choice.to_json()}
    relocated = check_transition(job["id"], JobState.QUEUED, JobState.PLACING, Reason.PLACED)
    row = Allocation(job["id"], AllocationKind.SUPERVISOR, "regroup-supervisor:x", data=plan)
    await live.store.apply(live.lease, relocated, now=1.0, allocate=[row])
    why = await live.client(lambda client: client.why(job["id"]))
    assert why.choice is not None and why.choice.inside == "rack r1"
    lines = render_why(why.model_dump(mode="json"))
    assert any(line.startswith("  placed in rack r1: ") and "between gpu_domains" in line for line in lines)
    assert "    not one node: the largest has capacity for 4 of 8 ranks" in lines


def test_a_topology_file_that_becomes_invalid_keeps_the_old_topology(tmp_path: Path) -> None:
    path = tmp_path / "topology.conf"
    topology = Topology(Settings(state_dir=tmp_path, topology_file=path))
    with pytest.raises(TopologyError, match=r"topology\.conf cannot be read: No such file.*; correct the file"):
        topology.check()
    path.write_text("SwitchName=s1 Nodes=a,b")
    topology.check()
    assert topology.located([node("a")])[0].domains == ("", "", "s1", "")
    path.write_text("SwitchName=s1 Nodes=a[")
    assert topology.located([node("a")])[0].domains == ("", "", "s1", "")
    assert "line 1" in topology.state([node("a")]).problems[0]
    path.write_text("SwitchName=s2 Nodes=a,b,c")
    assert topology.located([node("a")])[0].domains == ("", "", "s2", "")
    assert topology.state([node("a")]).problems == ()


def test_custom_labels_must_belong_to_levels(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown level 'switch'; expected one of zone, block, rack, gpu_domain"):
        Settings(state_dir=tmp_path, topology_labels={"switch": "x"})
    own = Settings(state_dir=tmp_path, topology_labels={"rack": "topology.kubernetes.io/rack"})
    there = Node("a", "a", "", labels={"topology.kubernetes.io/rack": "r3"})
    assert Topology(own).located([there])[0].domains == ("", "", "r3", "")
