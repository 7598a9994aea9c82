"""The order of ranks on given nodes, which minimizes communication."""

from itertools import pairwise, permutations

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


def cost(request: Demand, slots: tuple[RankSlot, ...]) -> float:
    """Return the communication time of ranks in the order of the slots."""
    names: dict[tuple[str, ...], int] = {}
    paths = [(*domains_of(slot.node)[:3], slot.node.id) for slot in slots]
    domains = [tuple(names.setdefault(path[: n + 1], len(names)) for n in range(4)) for path in paths]
    return communication_seconds(request.axes, RankMap(tuple(slot.ranks for slot in slots), tuple(domains)), CPU_LINKS)


def test_nodes_of_a_rack_are_adjacent() -> None:
    a, b, c, d = (node(name, rack) for name, rack in zip("abcd", "xyxy", strict=True))
    found = order_ranks(demand(8, SHARD), [RankSlot(each, 2) for each in (a, b, c, d)])
    assert [slot.node.id for slot in found] in (["a", "c", "b", "d"], ["c", "a", "b", "d"], ["b", "d", "a", "c"])
    assert all(slot.rank_numbers == () for slot in found)


def test_racks_of_many_nodes_are_kept_together_too() -> None:
    slots = [RankSlot(node(f"n{number}", "xy"[number % 2]), 1) for number in range(16)]
    found = order_ranks(demand(16, Axis("dp_shard", 16, 1e9)), slots)
    racks = [slot.node.labels["regroup.io/rack"] for slot in found]
    assert sum(one != other for one, other in pairwise(racks)) == 1


def test_without_labels_the_order_does_not_change() -> None:
    slots = [RankSlot(Node(name, name, "10.0.0.1", cpus=4), 2, (9,)) for name in "cab"]
    assert [slot.node.id for slot in order_ranks(demand(6, Axis("dp_shard", 6, 1e9)), slots)] == ["c", "a", "b"]
    assert [slot.rank_numbers for slot in order_ranks(demand(6), slots)] == [(), (), ()], (
        "rank numbers of another world size are discarded"
    )


def test_ranks_with_the_most_traffic_share_a_node_regardless_of_numbers() -> None:
    request = demand(4, Axis("dp_shard", 2, 1e6), Axis("dp_replicate", 2, 1e9))
    found = order_ranks(request, [RankSlot(node("a", "x"), 2), RankSlot(node("b", "x"), 2)])
    assert [slot.rank_numbers for slot in found] == [(0, 2), (1, 3)]


def test_a_closed_or_draining_node_keeps_its_ranks() -> None:
    slots = [RankSlot(node("a", "x", closed_reason="cordoned"), 2), RankSlot(node("b", "y", is_draining=True), 2)]
    assert {slot.node.id for slot in order_ranks(demand(4, Axis("dp_shard", 4, 1e9)), slots)} == {"a", "b"}


COUNTS = st.lists(st.tuples(st.integers(1, 3), st.sampled_from("xyz")), min_size=1, max_size=5)


@settings(max_examples=60)
@given(COUNTS, st.sampled_from([1e3, 1e6, 1e9]), st.booleans())
def test_the_order_loses_no_rank_and_is_close_to_the_optimum(
    counts: list[tuple[int, str]], sent: float, two: bool
) -> None:
    slots = [RankSlot(node(f"n{number}", rack), 2 * count) for number, (count, rack) in enumerate(counts)]
    ranks = sum(slot.ranks for slot in slots)
    axes = (Axis("dp_shard", ranks // 2, 1e6), Axis("pp", 2, sent, is_chain=True)) if two else (
        Axis("dp_shard", ranks, sent),
    )  # fmt: skip
    request = demand(ranks, *axes)
    found = order_ranks(request, slots)
    assert sorted((slot.node.id, slot.ranks) for slot in found) == [(slot.node.id, slot.ranks) for slot in slots]
    numbers = [number for slot in found for number in slot.rank_numbers]
    if numbers:
        assert sorted(numbers) == list(range(ranks)) and all(len(slot.rank_numbers) == slot.ranks for slot in found)
        return
    assert cost(request, found) <= cost(request, tuple(slots)) * (1 + 1e-9)
    least = min(cost(request, order) for order in permutations(slots))
    assert cost(request, found) <= least * (1 + 1e-5), "all orders of a few nodes are tried"
