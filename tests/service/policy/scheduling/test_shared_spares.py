"""Spares that the jobs of a project share."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from regroup.service.domain.topology import ANY, Kind, Node
from regroup.service.policy.scheduling.shared_spares import Keeper, Part, kept

PART = Part(2, (2.0, 0.0, 0), ANY)


def node(name: str, cpus: float = 2, free: float | None = None, image: str = "") -> Node:
    labels = {"regroup.io/image": image} if image else {}
    return Node(name, name, "::1", labels=labels, cpus=cpus, free_cpus=cpus if free is None else free)


def test_idle_nodes_that_could_take_a_part_are_kept_and_no_more_than_wanted() -> None:
    nodes = [node("busy", free=1), node("a"), node("b"), node("small", 1), replace(node("shut"), closed="cordoned")]
    assert kept([Keeper("vision", 1, [PART])], nodes) == {"a": "vision"}
    assert kept([Keeper("vision", 5, [PART])], nodes) == {"a": "vision", "b": "vision"}
    assert kept([Keeper("vision", 5, [])], nodes) == {}, "none of its jobs runs"


def test_what_takes_most_parts_first() -> None:
    large = Part(4, (4.0, 0.0, 0), ANY)
    assert kept([Keeper("vision", 1, [PART, large])], [node("a"), node("b", 4)]) == {"b": "vision"}


def test_a_limit_counts_the_largest_part() -> None:
    nodes = [node("a"), node("b")]
    assert kept([Keeper("vision", 2, [PART], most_ranks=3)], nodes) == {"a": "vision"}
    assert kept([Keeper("vision", 2, [PART], most_ranks=1)], nodes) == {}


def test_nodes_of_another_kind_take_nobodys_place() -> None:
    new = replace(PART, kind=Kind(image="new"))
    assert kept([Keeper("vision", 2, [new])], [node("a", image="old"), node("b", image="new")]) == {"b": "vision"}


@given(st.integers(0, 3), st.integers(0, 3), st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=6))
def test_no_node_is_kept_twice_and_busy_ones_never(one: int, two: int, there: list[tuple[int, bool]]) -> None:
    nodes = [node(f"n{at}", cpus, cpus if idle else cpus - 1) for at, (cpus, idle) in enumerate(there)]
    found = kept([Keeper("b", one, [PART]), Keeper("a", two, [PART])], nodes)
    able = [each.id for each in nodes if each.free_cpus == each.cpus and each.cpus >= 2]
    assert set(found) <= set(able) and len(found) == min(len(able), one + two)
    assert sum(project == "a" for project in found.values()) == min(len(able), two), "by name, so always the same"
