"""Placement with several clusters: the ranks of a job are in one cluster, and only its nodes are explained."""

from dataclasses import replace

from regroup.service.domain.topology import Level, Node, NodeKind
from regroup.service.policy.placement.place import (
    Demand,
    Placement,
    Shortage,
    Unplaceable,
    fits_empty_cluster,
    place,
    place_replacements,
)

WEST = NodeKind(cluster="west")
HERE = Demand(4, 1, "cuda", 1)
THERE = replace(HERE, kind=WEST)


def node(name: str, cluster: str = "", free: int = 2, where: tuple[str, ...] = ()) -> Node:
    return Node(name, name, "::1", cpus=8, gpus=2, free_cpus=8, free_gpus=free, cluster=cluster, domains=where)


def clusters_of(found: Placement | Unplaceable) -> set[str]:
    assert isinstance(found, Placement), found
    return {slot.node.cluster for slot in found.slots}


def test_all_ranks_are_in_the_cluster_of_the_job() -> None:
    nodes = [node("a1"), node("west:b1", "west"), node("a2"), node("west:b2", "west")]
    assert clusters_of(place(HERE, nodes)) == {""}
    assert clusters_of(place(THERE, nodes)) == {"west"}
    assert fits_empty_cluster(THERE, nodes) and not fits_empty_cluster(replace(THERE, ranks=5), nodes)


def test_a_job_never_spans_clusters_even_if_it_waits() -> None:
    nodes = [node("a1"), node("west:b1", "west"), node("west:b2", "west", free=0)]
    here, there = place(HERE, nodes), place(THERE, nodes)
    assert isinstance(here, Unplaceable) and isinstance(there, Unplaceable)
    assert here.reason is Shortage.TOO_LARGE and there.reason is Shortage.RESOURCES
    assert "a1" in here.message and "west" not in here.message
    assert "west:b1" in there.message and "a1" not in there.message
    assert "on nodes with cluster west" in there.message


def test_a_cluster_without_nodes_is_not_one_with_nodes_elsewhere() -> None:
    found = place(THERE, [node("a1"), node("a2")])
    assert isinstance(found, Unplaceable) and found.reason is Shortage.NO_NODES


def test_a_lost_node_is_replaced_in_its_cluster() -> None:
    nodes = [node("a1"), node("west:b1", "west", free=1), node("west:b2", "west")]
    assert clusters_of(place_replacements(THERE, [2], nodes)) == {"west"}
    found = place_replacements(HERE, [2, 2], nodes)
    assert isinstance(found, Unplaceable) and "west" not in found.message


def test_labels_of_another_cluster_do_not_split_an_unlabelled_one() -> None:
    racks = [node(f"west:b{at}", "west", where=("z", "b", f"r{at}", "")) for at in range(2)]
    plain = [node("a1"), node("a2")]
    alone, beside = place(HERE, plain), place(HERE, [*plain, *racks])
    assert isinstance(alone, Placement) and isinstance(beside, Placement)
    assert beside.choice == alone.choice
    in_rack = replace(HERE, required=Level.RACK)
    message = "the nodes have no rack label"
    found = place(in_rack, [*plain, *racks])
    assert isinstance(found, Unplaceable) and message in found.message
