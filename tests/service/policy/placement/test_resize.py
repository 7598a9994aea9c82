"""Other numbers of ranks for a job that runs: what it keeps, what it gives up, where it gets more."""

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

Seats = list[tuple[str, int]]


def node(name: str, free: int, cpus: int = 4, *, closed_reason: str = "") -> Node:
    return Node(name, name, "10.0.0.1", cpus=cpus, free_cpus=free, closed_reason=closed_reason)


def demand(ranks: int, segment: int = 1) -> Demand:
    return Demand(ranks, segment, "cpu", 1)


def seated(ranks: int, seats: Seats, *nodes: Node, segment: int = 1) -> Seats:
    found = resize_slots(demand(ranks, segment), seats, nodes)
    assert not isinstance(found, Unplaceable), found
    return [(seat.node.id, seat.ranks) for seat in found]


@pytest.mark.parametrize(
    ("ranks", "seats", "expected"),
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
def test_ranks_stay_where_they_are(ranks: int, seats: Seats, expected: Seats) -> None:
    held = dict(seats)
    nodes = [node(name, 4 - held.get(name, 0)) for name in "abc"]
    assert seated(ranks, seats, *nodes) == expected


def test_a_node_that_takes_nothing_new_is_given_no_more() -> None:
    assert seated(4, [("a", 2)], node("a", 2, closed_reason="cordoned"), node("b", 4)) == [("a", 2), ("b", 2)]
    assert seated(1, [("a", 2)], node("a", 2, closed_reason="cordoned")) == [("a", 1)]


def test_a_node_that_the_job_may_not_keep_is_not_among_its_seats() -> None:
    assert seated(4, [("b", 2)], node("a", 4), node("b", 0)) == [("b", 2), ("a", 2)]


def test_what_is_known_of_all_ranks_does_not_place_those_that_are_missing() -> None:
    wanted = replace(demand(6), axes=(Axis("dp_shard", 6, 1e6),))
    found = resize_slots(wanted, [("a", 2), ("b", 2)], [node("a", 0), node("b", 0), node("c", 2)])
    assert not isinstance(found, Unplaceable)
    assert [(seat.node.id, seat.ranks, seat.rank_numbers) for seat in found] == [
        ("a", 2, ()),
        ("b", 2, ()),
        ("c", 2, ()),
    ]


def test_groups_stay_whole() -> None:
    assert seated(4, [("a", 3), ("b", 1)], node("a", 1), node("b", 3), segment=2) == [("a", 2), ("b", 2)]


def test_what_there_is_no_room_for_says_so() -> None:
    found = resize_slots(demand(6), [("a", 2)], [node("a", 1), node("b", 2)])
    assert isinstance(found, Unplaceable)
    assert "from 2 to 6 ranks: needs 3 ranks" in found.message and "2 of 4 are free" in found.message


def racked(name: str, free: int, rack: str) -> Node:
    return replace(node(name, free), domains=("", "", rack, ""))


def test_what_the_whole_job_requires_holds_for_what_is_added() -> None:
    inside = replace(demand(4), required=Level.RACK)
    near, far = racked("near", 4, "r1"), racked("far", 2, "r2")
    found = resize_slots(inside, [("a", 2)], [racked("a", 0, "r1"), far, near])
    assert not isinstance(found, Unplaceable)
    assert [seat.node.id for seat in found] == ["a", "near"], "although another fits tighter"
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
def test_what_is_added_leaves_the_whole_job_spread(
    ranks: int, free: dict[str, int], expected: dict[str, int] | None
) -> None:
    """`c1` is in rack r1, as `a` is, and `b` in r2."""
    apart, own = replace(demand(ranks), spread=Level.RACK), free.get("a1", 0)
    there = [racked("a", own, "r1"), racked("b", 0, "r2")]
    there += [racked(name, count, f"r{name[1]}") for name, count in free.items() if name != "a1"]
    found = resize_slots(apart, [("a", 2), ("b", 2)], there)
    if expected is None:
        assert isinstance(found, Unplaceable) and "more than half would be in one rack" in found.message
    else:
        assert not isinstance(found, Unplaceable)
        assert Counter(seat.node.domains[2] for seat in found) == expected


def test_nodes_whose_labels_changed_while_they_were_used() -> None:
    inside = replace(demand(4), required=Level.RACK)
    seats, now = [("a", 2), ("b", 2)], [racked("a", 0, "r1"), racked("b", 0, "r2"), racked("c", 4, "r1")]
    kept = resize_slots(inside, seats, now)
    assert not isinstance(kept, Unplaceable) and [seat.ranks for seat in kept] == [2, 2], "who runs is left alone"
    less = resize_slots(replace(inside, ranks=2), seats, now)
    assert not isinstance(less, Unplaceable) and [seat.node.id for seat in less] == ["a"]
    refused = resize_slots(replace(inside, ranks=6), seats, now)
    assert isinstance(refused, Unplaceable)
    assert "needs 2 more ranks in one rack, but its ranks are in 2" in refused.message


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 3), st.sampled_from(["", "r1", "r2"])), min_size=1, max_size=5
    ),
    st.integers(1, 12),
    st.sampled_from([None, Level.NODE, *DOMAIN_LEVELS]),
)
def test_whatever_nodes_are_called_by_now_it_is_answered_and_nothing_new_is_elsewhere(
    there: list[tuple[int, int, str]], ranks: int, required: Level | None
) -> None:
    nodes = [racked(f"n{at}", free, rack) for at, (_, free, rack) in enumerate(there)]
    seats = [(f"n{at}", have) for at, (have, _, _) in enumerate(there) if have]
    found = resize_slots(replace(demand(ranks), required=required), seats, nodes)
    if isinstance(found, Unplaceable) or required is None:
        return
    held = {name for name, _ in seats}
    new, kept = ([seat.node for seat in found if (seat.node.id in held) is had] for had in (False, True))
    if new and kept and required is Level.RACK:
        (rack,) = {each.domains[2] for each in (*new, *kept)}
        assert rack, "a node of which nothing is known is not where others are"
    assert not (new and kept and required is Level.NODE)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=5),
    st.integers(1, 20),
    st.sampled_from([1, 2]),
)
def test_no_node_holds_more_than_it_has_and_nothing_is_moved_without_need(
    held_and_free: list[tuple[int, int]], groups: int, segment: int
) -> None:
    names = [f"n{number}" for number in range(len(held_and_free))]
    held = {name: have // segment * segment for name, (have, _) in zip(names, held_and_free, strict=True)}
    free = {name: more for name, (_, more) in zip(names, held_and_free, strict=True)}
    nodes = [node(name, free[name], held[name] + free[name]) for name in names]
    ranks = groups * segment
    found = resize_slots(demand(ranks, segment), [(name, have) for name, have in held.items() if have], nodes)
    if isinstance(found, Unplaceable):
        assert sum(have + free[name] // segment * segment for name, have in held.items()) < ranks
        return
    given_ = {seat.node.id: seat.ranks for seat in found}
    assert len(given_) == len(found) and sum(given_.values()) == ranks
    assert all(count % segment == 0 and 0 < count <= held[name] + free[name] for name, count in given_.items())
    kept = sum(min(held[name], count) for name, count in given_.items())
    assert kept == min(ranks, sum(held.values()))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.data())
@settings(max_examples=50, deadline=None)
def test_the_queue_knows_what_a_job_that_shrinks_will_give_up(counts: list[int], data: st.DataObject) -> None:
    seats = [(f"n{at}", count) for at, count in enumerate(counts)]
    ranks = data.draw(st.integers(1, sum(counts)))
    kept = dict(seated(ranks, seats, *(node(name, 0) for name, _ in seats)))
    gone = dict(released_node_ranks(seats, demand(sum(counts)), Size(Layout(dp_shard=ranks), demand(ranks))))
    assert {name: kept.get(name, 0) + gone.get(name, 0) for name, _ in seats} == dict(seats)
