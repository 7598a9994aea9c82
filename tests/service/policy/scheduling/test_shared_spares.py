"""Spares that the jobs of a project share."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from regroup.service.domain.topology import ANY_KIND, Node, NodeKind
from regroup.service.policy.scheduling.shared_spares import NodeShare, SparePool, assign_shared_spares

PART = NodeShare(2, (2.0, 0.0, 0), ANY_KIND)


def node(name: str, cpus: float = 2, free: float | None = None, image: str = "") -> Node:
    labels = {"regroup.io/image": image} if image else {}
    return Node(name, name, "::1", labels=labels, cpus=cpus, free_cpus=cpus if free is None else free)


def test_idle_nodes_that_could_take_a_part_are_kept_and_no_more_than_wanted() -> None:
    nodes = [
        node("busy", free=1),
        node("a"),
        node("b"),
        node("small", 1),
        replace(node("shut"), closed_reason="cordoned"),
    ]
    assert assign_shared_spares([SparePool("vision", 1, [PART])], nodes) == {"a": "vision"}
    assert assign_shared_spares([SparePool("vision", 5, [PART])], nodes) == {"a": "vision", "b": "vision"}
    assert assign_shared_spares([SparePool("vision", 5, [])], nodes) == {}, "none of its jobs runs"


def test_what_takes_most_parts_first() -> None:
    large = NodeShare(4, (4.0, 0.0, 0), ANY_KIND)
    assert assign_shared_spares([SparePool("vision", 1, [PART, large])], [node("a"), node("b", 4)]) == {"b": "vision"}


def test_a_limit_counts_the_largest_part() -> None:
    nodes = [node("a"), node("b")]
    assert assign_shared_spares([SparePool("vision", 2, [PART], max_ranks=3)], nodes) == {"a": "vision"}
    assert assign_shared_spares([SparePool("vision", 2, [PART], max_ranks=1)], nodes) == {}


def test_nodes_of_another_kind_take_nobodys_place() -> None:
    new = replace(PART, kind=NodeKind(image="new"))
    assert assign_shared_spares([SparePool("vision", 2, [new])], [node("a", image="old"), node("b", image="new")]) == {
        "b": "vision"
    }


@given(st.integers(0, 3), st.integers(0, 3), st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=6))
def test_no_node_is_kept_twice_and_busy_ones_never(one: int, two: int, there: list[tuple[int, bool]]) -> None:
    nodes = [node(f"n{at}", cpus, cpus if idle else cpus - 1) for at, (cpus, idle) in enumerate(there)]
    found = assign_shared_spares([SparePool("b", one, [PART]), SparePool("a", two, [PART])], nodes)
    able = [each.id for each in nodes if each.free_cpus == each.cpus and each.cpus >= 2]
    assert set(found) <= set(able) and len(found) == min(len(able), one + two)
    assert sum(project == "a" for project in found.values()) == min(len(able), two), "by name, so always the same"
