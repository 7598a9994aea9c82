"""Resize of a running job: ranks that stay, ranks that are released, and the placement of added ranks."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import DOMAIN_LEVELS, Level, Node
from regroup.service.policy.placement.communication_cost import Axis
from regroup.service.policy.placement.place import Demand, Unplaceable
from regroup.service.policy.placement.resize import resize_slots
from regroup.service.policy.scheduling.entries import Size
from regroup.service.policy.scheduling.preemption import released_node_ranks

Slots = list[tuple[str, int]]


def node(name: str, free: int, cpus: int = 4, *, closed_reason: str = "") -> Node:
    return Node(name, name, "10.0.0.1", cpus=cpus, free_cpus=free, closed_reason=closed_reason)


def demand(ranks: int, segment: int = 1) -> Demand:
    return Demand(ranks, segment, "cpu", 1)


def resized(ranks: int, slots: Slots, *nodes: Node, segment: int = 1) -> Slots:
    found = resize_slots(demand(ranks, segment), slots, nodes)
    assert not isinstance(found, Unplaceable), found
    return [(slot.node.id, slot.ranks) for slot in found]


@pytest.mark.parametrize(
    ("ranks", "slots", "expected"),
    [
        (4, [("a", 2)], [("a", 4)]),
        (3, [("a", 2), ("b", 2)], [("a", 2), ("b", 1)]),
        (3, [("a", 2), ("b", 2), ("c", 2)], [("a", 2), ("b", 1)]),
        (2, [("a", 1), ("b", 2)], [("b", 2)]),
        (5, [("a", 2), ("b", 2)], [("a", 3), ("b", 2)]),
        (7, [("a", 2), ("b", 2)], [("a", 4), ("b", 3)]),
        (10, [("a", 2), ("b", 2)], [("a", 4), ("b", 4), ("c", 2)]),
        (4, [("a", 2), ("b", 2)], [("a", 2), ("b", 2)]),
    ],
)
def test_as_many_ranks_as_possible_stay_on_their_nodes(ranks: int, slots: Slots, expected: Slots) -> None:
    allocated = dict(slots)
    nodes = [node(name, 4 - allocated.get(name, 0)) for name in "abc"]
    assert resized(ranks, slots, *nodes) == expected


def test_a_closed_node_gets_no_further_ranks() -> None:
    assert resized(4, [("a", 2)], node("a", 2, closed_reason="cordoned"), node("b", 4)) == [("a", 2), ("b", 2)]
    assert resized(1, [("a", 2)], node("a", 2, closed_reason="cordoned")) == [("a", 1)]


def test_a_node_without_a_slot_of_the_job_counts_as_a_new_node() -> None:
    assert resized(4, [("b", 2)], node("a", 4), node("b", 0)) == [("b", 2), ("a", 2)]


def test_communication_of_all_ranks_does_not_prevent_added_ranks() -> None:
    request = replace(demand(6), axes=(Axis("dp_shard", 6, 1e6),))
    found = resize_slots(request, [("a", 2), ("b", 2)], [node("a", 0), node("b", 0), node("c", 2)])
    assert not isinstance(found, Unplaceable)
    assert [(slot.node.id, slot.ranks, slot.rank_numbers) for slot in found] == [
        ("a", 2, ()),
        ("b", 2, ()),
        ("c", 2, ()),
    ]


def test_groups_are_not_split() -> None:
    assert resized(4, [("a", 3), ("b", 1)], node("a", 1), node("b", 3), segment=2) == [("a", 2), ("b", 2)]


def test_missing_capacity_is_reported() -> None:
    found = resize_slots(demand(6), [("a", 2)], [node("a", 1), node("b", 2)])
    assert isinstance(found, Unplaceable)
    assert "from 2 to 6 ranks: needs 3 ranks" in found.message and "2 of 4 are free" in found.message


def racked(name: str, free: int, rack: str) -> Node:
    return replace(node(name, free), domains=("", "", rack, ""))


def test_a_required_level_applies_to_added_ranks() -> None:
    inside = replace(demand(4), required=Level.RACK)
    near, far = racked("near", 4, "r1"), racked("far", 2, "r2")
    found = resize_slots(inside, [("a", 2)], [racked("a", 0, "r1"), far, near])
    assert not isinstance(found, Unplaceable)
    assert [slot.node.id for slot in found] == ["a", "near"], "although another node has a tighter fit"
    refused = resize_slots(inside, [("a", 2)], [racked("a", 0, "r1"), far])
    assert isinstance(refused, Unplaceable)
    assert refused.message.endswith("needs 2 more ranks in its rack, which has no other node")
    alone = resize_slots(replace(demand(4), required=Level.NODE), [("a", 2)], [racked("a", 0, "r1"), near])
    assert isinstance(alone, Unplaceable) and "more ranks in its node" in alone.message


@pytest.mark.parametrize(
    ("ranks", "free", "expected"),
    [
        (6, {"c1": 2, "c3": 2}, {"r1": 1, "r2": 1, "r3": 1}),
        (8, {"c1": 2, "d1": 2, "c2": 4}, {"r1": 2, "r2": 2}),
        (6, {"c1": 2, "c2": 2}, {"r1": 2, "r2": 2}),
        (6, {"c1": 2, "d1": 2}, None),
        (5, {"a1": 1, "c1": 2}, {"r1": 1, "r2": 1}),
    ],
)
def test_added_ranks_keep_the_job_spread(ranks: int, free: dict[str, int], expected: dict[str, int] | None) -> None:
    """Place ranks with `a` and `c1` in rack r1, and `b` in r2."""
    apart, own = replace(demand(ranks), spread=Level.RACK), free.get("a1", 0)
    nodes = [racked("a", own, "r1"), racked("b", 0, "r2")]
    nodes += [racked(name, count, f"r{name[1]}") for name, count in free.items() if name != "a1"]
    found = resize_slots(apart, [("a", 2), ("b", 2)], nodes)
    if expected is None:
        assert isinstance(found, Unplaceable) and "more than half would be in one rack" in found.message
    else:
        assert not isinstance(found, Unplaceable)
        assert Counter(slot.node.domains[2] for slot in found) == expected


def test_changed_labels_of_nodes_in_use_do_not_move_ranks() -> None:
    inside = replace(demand(4), required=Level.RACK)
    slots, now = [("a", 2), ("b", 2)], [racked("a", 0, "r1"), racked("b", 0, "r2"), racked("c", 4, "r1")]
    kept = resize_slots(inside, slots, now)
    assert not isinstance(kept, Unplaceable) and [slot.ranks for slot in kept] == [2, 2], "running ranks stay"
    less = resize_slots(replace(inside, ranks=2), slots, now)
    assert not isinstance(less, Unplaceable) and [slot.node.id for slot in less] == ["a"]
    refused = resize_slots(replace(inside, ranks=6), slots, now)
    assert isinstance(refused, Unplaceable)
    assert "needs 2 more ranks in one rack, but its ranks are in 2" in refused.message


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 3), st.sampled_from(["", "r1", "r2"])), min_size=1, max_size=5
    ),
    st.integers(1, 12),
    st.sampled_from([None, Level.NODE, *DOMAIN_LEVELS]),
)
def test_with_any_labels_added_ranks_are_in_the_required_domain(
    entries: list[tuple[int, int, str]], ranks: int, required: Level | None
) -> None:
    nodes = [racked(f"n{at}", free, rack) for at, (_, free, rack) in enumerate(entries)]
    slots = [(f"n{at}", have) for at, (have, _, _) in enumerate(entries) if have]
    found = resize_slots(replace(demand(ranks), required=required), slots, nodes)
    if isinstance(found, Unplaceable) or required is None:
        return
    allocated = {name for name, _ in slots}
    new, kept = ([slot.node for slot in found if (slot.node.id in allocated) is had] for had in (False, True))
    if new and kept and required is Level.RACK:
        (rack,) = {each.domains[2] for each in (*new, *kept)}
        assert rack, "a node without a rack label does not share a rack"
    assert not (new and kept and required is Level.NODE)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=5),
    st.integers(1, 20),
    st.sampled_from([1, 2]),
)
def test_no_node_exceeds_its_capacity_and_no_rank_moves_unnecessarily(
    allocated_and_free: list[tuple[int, int]], groups: int, segment: int
) -> None:
    names = [f"n{number}" for number in range(len(allocated_and_free))]
    allocated = {name: have // segment * segment for name, (have, _) in zip(names, allocated_and_free, strict=True)}
    free = {name: more for name, (_, more) in zip(names, allocated_and_free, strict=True)}
    nodes = [node(name, free[name], allocated[name] + free[name]) for name in names]
    ranks = groups * segment
    found = resize_slots(demand(ranks, segment), [(name, have) for name, have in allocated.items() if have], nodes)
    if isinstance(found, Unplaceable):
        assert sum(have + free[name] // segment * segment for name, have in allocated.items()) < ranks
        return
    resulting = {slot.node.id: slot.ranks for slot in found}
    assert len(resulting) == len(found) and sum(resulting.values()) == ranks
    assert all(count % segment == 0 and 0 < count <= allocated[name] + free[name] for name, count in resulting.items())
    kept = sum(min(allocated[name], count) for name, count in resulting.items())
    assert kept == min(ranks, sum(allocated.values()))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.data())
@settings(max_examples=50)
def test_the_queue_predicts_the_ranks_that_a_smaller_job_releases(counts: list[int], data: st.DataObject) -> None:
    slots = [(f"n{at}", count) for at, count in enumerate(counts)]
    ranks = data.draw(st.integers(1, sum(counts)))
    kept = dict(resized(ranks, slots, *(node(name, 0) for name, _ in slots)))
    released = dict(released_node_ranks(slots, demand(sum(counts)), Size(Layout(dp_shard=ranks), demand(ranks))))
    assert {name: kept.get(name, 0) + released.get(name, 0) for name, _ in slots} == dict(slots)
