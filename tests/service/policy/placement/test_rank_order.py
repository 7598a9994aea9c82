"""Ranks over nodes that are settled: where they talk least."""

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.domain.topology import Node, domains_of
from regroup.service.policy.placement.communication_cost import Axis, RankMap, communication_seconds
from regroup.service.policy.placement.demand import Demand, RankSlot
from regroup.service.policy.placement.link_speeds import CPU_LINKS
from regroup.service.policy.placement.rank_order import order_ranks

SHARD = Axis("dp_shard", 8, 1e9)


def node(name: str, rack: str, **more: object) -> Node:
    return Node(name, name, "10.0.0.1", labels={"regroup.io/rack": rack}, cpus=4, **more)  # type: ignore[arg-type]


def demand(ranks: int, *axes: Axis, segment: int = 1) -> Demand:
    return Demand(ranks, segment, "cpu", 1, axes=axes)


def cost(wanted: Demand, seats: tuple[RankSlot, ...]) -> float:
    """Of ranks in the order of the seats."""
    names: dict[tuple[str, ...], int] = {}
    paths = [(*domains_of(seat.node)[:3], seat.node.id) for seat in seats]
    domains = [tuple(names.setdefault(path[: n + 1], len(names)) for n in range(4)) for path in paths]
    return communication_seconds(wanted.axes, RankMap(tuple(seat.ranks for seat in seats), tuple(domains)), CPU_LINKS)


def test_nodes_of_a_rack_come_together() -> None:
    a, b, c, d = (node(name, rack) for name, rack in zip("abcd", "xyxy", strict=True))
    found = order_ranks(demand(8, SHARD), [RankSlot(each, 2) for each in (a, b, c, d)])
    assert [seat.node.id for seat in found] in (["a", "c", "b", "d"], ["c", "a", "b", "d"], ["b", "d", "a", "c"])
    assert all(seat.rank_numbers == () for seat in found)


def test_where_nothing_is_known_the_order_stays() -> None:
    seats = [RankSlot(Node(name, name, "10.0.0.1", cpus=4), 2, (9,)) for name in "cab"]
    assert [seat.node.id for seat in order_ranks(demand(6, Axis("dp_shard", 6, 1e9)), seats)] == ["c", "a", "b"]
    assert [seat.rank_numbers for seat in order_ranks(demand(6), seats)] == [(), (), ()], (
        "numbers of another size are forgotten"
    )


def test_ranks_that_talk_most_are_next_to_each_other_whatever_they_are_called() -> None:
    wanted = demand(4, Axis("dp_shard", 2, 1e6), Axis("dp_replicate", 2, 1e9))
    found = order_ranks(wanted, [RankSlot(node("a", "x"), 2), RankSlot(node("b", "x"), 2)])
    assert [seat.rank_numbers for seat in found] == [(0, 2), (1, 3)]


def test_a_node_that_takes_nothing_new_keeps_its_place() -> None:
    seats = [RankSlot(node("a", "x", closed_reason="cordoned"), 2), RankSlot(node("b", "y", is_draining=True), 2)]
    assert {seat.node.id for seat in order_ranks(demand(4, Axis("dp_shard", 4, 1e9)), seats)} == {"a", "b"}


COUNTS = st.lists(st.tuples(st.integers(1, 3), st.sampled_from("xyz")), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(COUNTS, st.sampled_from([1e3, 1e6, 1e9]), st.booleans())
def test_nobody_is_lost_it_is_never_worse_and_near_the_best(
    held: list[tuple[int, str]], sent: float, two: bool
) -> None:
    seats = [RankSlot(node(f"n{number}", rack), 2 * count) for number, (count, rack) in enumerate(held)]
    ranks = sum(seat.ranks for seat in seats)
    axes = (Axis("dp_shard", ranks // 2, 1e6), Axis("pp", 2, sent, is_chain=True)) if two else (
        Axis("dp_shard", ranks, sent),
    )  # fmt: skip
    wanted = demand(ranks, *axes)
    found = order_ranks(wanted, seats)
    assert sorted((seat.node.id, seat.ranks) for seat in found) == [(seat.node.id, seat.ranks) for seat in seats]
    numbers = [number for seat in found for number in seat.rank_numbers]
    if numbers:
        assert sorted(numbers) == list(range(ranks)) and all(len(seat.rank_numbers) == seat.ranks for seat in found)
        return
    assert cost(wanted, found) <= cost(wanted, tuple(seats)) * (1 + 1e-9)
    least = min(cost(wanted, order) for order in permutations(seats))
    assert cost(wanted, found) <= least * (1 + 1e-5), "of so few nodes every order is tried"
