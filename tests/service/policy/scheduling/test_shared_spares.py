"""Spare nodes that the jobs of a project share."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from regroup.service.domain.topology import ANY_KIND, Node, NodeKind
from regroup.service.policy.scheduling.shared_spares import NodeShare, SparePool, assign_shared_spares

SHARE = NodeShare(2, (2.0, 0.0, 0), ANY_KIND)


def node(name: str, cpus: float = 2, free: float | None = None, image: str = "") -> Node:
    labels = {"regroup.io/image": image} if image else {}
    return Node(name, name, "::1", labels=labels, cpus=cpus, free_cpus=cpus if free is None else free)


def test_idle_nodes_that_fit_a_share_are_reserved_up_to_the_requested_number() -> None:
    nodes = [
        node("busy", free=1),
        node("a"),
        node("b"),
        node("small", 1),
        replace(node("shut"), closed_reason="cordoned"),
    ]
    assert assign_shared_spares([SparePool("vision", 1, [SHARE])], nodes) == {"a": "vision"}
    assert assign_shared_spares([SparePool("vision", 5, [SHARE])], nodes) == {"a": "vision", "b": "vision"}
    assert assign_shared_spares([SparePool("vision", 5, [])], nodes) == {}, "the project has no running job"


def test_nodes_that_fit_the_most_shares_come_first() -> None:
    large = NodeShare(4, (4.0, 0.0, 0), ANY_KIND)
    assert assign_shared_spares([SparePool("vision", 1, [SHARE, large])], [node("a"), node("b", 4)]) == {"b": "vision"}


def test_a_spare_counts_as_the_largest_share_against_the_limit() -> None:
    nodes = [node("a"), node("b")]
    assert assign_shared_spares([SparePool("vision", 2, [SHARE], max_ranks=3)], nodes) == {"a": "vision"}
    assert assign_shared_spares([SparePool("vision", 2, [SHARE], max_ranks=1)], nodes) == {}


def test_nodes_with_a_different_kind_are_not_reserved() -> None:
    new = replace(SHARE, kind=NodeKind(image="new"))
    assert assign_shared_spares([SparePool("vision", 2, [new])], [node("a", image="old"), node("b", image="new")]) == {
        "b": "vision"
    }


@given(st.integers(0, 3), st.integers(0, 3), st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=6))
def test_no_node_is_reserved_twice_and_no_busy_node_is_reserved(
    one: int, two: int, sizes: list[tuple[int, bool]]
) -> None:
    nodes = [node(f"n{at}", cpus, cpus if idle else cpus - 1) for at, (cpus, idle) in enumerate(sizes)]
    found = assign_shared_spares([SparePool("b", one, [SHARE]), SparePool("a", two, [SHARE])], nodes)
    able = [each.id for each in nodes if each.free_cpus == each.cpus and each.cpus >= 2]
    assert set(found) <= set(able) and len(found) == min(len(able), one + two)
    assert sum(project == "a" for project in found.values()) == min(len(able), two), "projects are sorted by name"
