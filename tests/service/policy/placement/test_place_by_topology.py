"""Where ranks go in a cluster of blocks, racks and nodes: what must always hold, and what each wish of a spec does."""

import dataclasses
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.placement.placement_model import Spot, spelled_out
from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import DOMAIN_LEVELS, Level, Node
from regroup.service.policy.placement.communication_cost import Axis
from regroup.service.policy.placement.link_speeds import GPU_LINKS
from regroup.service.policy.placement.place import (
    Demand,
    NodeIndex,
    Placement,
    PlacementChoice,
    Shortage,
    Unplaceable,
    fits_empty_cluster,
    place,
    place_replacements,
)
from regroup.service.policy.placement.traffic import UNKNOWN_WORK, axes


def node(name: str, free: int = 8, where: tuple[str, ...] = (), gpus: int = 8, **fields: object) -> Node:
    plain = Node(name, name, "", cpus=64, gpus=gpus, free_cpus=64, free_gpus=free, domains=where)
    return dataclasses.replace(plain, **fields)


def rack(number: int, nodes: int, free: int = 8, block: str = "b0") -> list[Node]:
    return [node(f"r{number}n{at}", free, ("", block, f"r{number}", "")) for at in range(nodes)]


def demand(layout: Layout, **fields: object) -> Demand:
    plain = Demand(layout.world_size, layout.tp, "cuda", 1, axes=axes(layout, UNKNOWN_WORK))
    return dataclasses.replace(plain, **fields)


def seats(outcome: Placement | Unplaceable) -> dict[str, int]:
    assert isinstance(outcome, Placement), outcome
    return {seat.node.name: seat.ranks for seat in outcome.slots}


def spots(outcome: Placement) -> list[Spot]:
    """By rank."""
    found = dict[int, Spot]()
    for number, seat in enumerate(outcome.slots):
        where = seat.node.domains
        # As the policy does: a level that nobody names has one domain, one that others are in alone is the node's own.
        spot = Spot(number, (*where[:3], where[3] or f"alone {number}"))
        for rank in seat.rank_numbers or range(len(found), len(found) + seat.ranks):
            assert rank not in found
            found[rank] = spot
    return [found[rank] for rank in range(len(found))]


layouts = st.builds(
    Layout,
    dp_replicate=st.sampled_from([1, 1, 2]),
    dp_shard=st.integers(1, 6),
    tp=st.sampled_from([1, 1, 2, 4]),
    pp=st.sampled_from([1, 1, 2, 3]),
)
levels = st.sampled_from([None, None, None, Level.BLOCK, Level.RACK, Level.GPU_DOMAIN, Level.NODE])


@st.composite
def clusters(draw: st.DrawFn) -> list[Node]:
    count = draw(st.integers(1, 12))
    has_domains = draw(st.booleans())
    return [
        node(
            f"n{at}",
            draw(st.integers(0, 8)),
            ("", f"b{(racked := draw(st.integers(0, 3))) // 2}", f"r{racked}", f"g{racked}" if has_domains else ""),
            is_control=draw(st.integers(0, 9)) == 0,
        )
        for at in range(count)
    ]


@settings(max_examples=60, deadline=None)
@given(clusters(), layouts, levels, levels, st.sampled_from([None, None, Level.NODE, Level.RACK]), st.booleans())
def test_whatever_is_asked_a_placement_keeps_to_it(
    nodes: list[Node], layout: Layout, required: Level | None, preferred: Level | None, spread: Level | None, wide: bool
) -> None:
    within = Level.GPU_DOMAIN if wide else Level.NODE
    asked = demand(layout, required=required, preferred=preferred, spread=spread, segment_within=within)
    outcome = place(asked, nodes)
    assert outcome == place(asked, list(reversed(nodes))), "the order of what the cluster tells changes nothing"
    if isinstance(outcome, Unplaceable):
        assert outcome.message
        return
    assert sum(seat.ranks for seat in outcome.slots) == layout.world_size, "a gang is whole"
    assert len({seat.node.id for seat in outcome.slots}) == len(outcome.slots)
    assert all(0 < seat.ranks <= seat.node.free_gpus and not seat.node.is_control for seat in outcome.slots)
    ranks = spots(outcome)
    for first in range(0, len(ranks), layout.tp):
        group = ranks[first : first + layout.tp]
        assert len({spot.node for spot in group} if not wide else {spot.domains for spot in group}) == 1, "TP is torn"
    used = [
        seat.node.domains[: DOMAIN_LEVELS.index(required) + 1] for seat in outcome.slots if required in DOMAIN_LEVELS
    ]
    assert len(set(used)) <= 1 and (required is not Level.NODE or len(outcome.slots) == 1)
    if spread is not None:
        apart = [seat.node.name if spread is Level.NODE else seat.node.domains[:3] for seat in outcome.slots]
        assert all(2 * apart.count(one) <= len(apart) for one in apart), "mirrors are beside their nodes"
    assert outcome.choice is not None
    assert outcome.choice.communication_s == pytest.approx(spelled_out(asked.axes, ranks, GPU_LINKS), rel=1e-9)
    assert PlacementChoice.from_json(outcome.choice.to_json()) == outcome.choice


@settings(max_examples=30, deadline=None)
@given(clusters(), st.lists(layouts, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_what_a_site_gives_is_gone_until_it_is_given_back(
    nodes: list[Node], wanted: list[Layout], chance: random.Random
) -> None:
    site, taken = NodeIndex(nodes), list[tuple[Demand, Placement]]()
    before = list(site.free_ranks(demand(Layout())))
    for layout in wanted:
        asked = demand(layout)
        if isinstance(found := place(asked, site), Placement):
            site.allocate(asked, found)
            taken.append((asked, found))
        assert all(free >= 0 for free in site.free_ranks(asked))
        held = {item.id: 0 for item in nodes}
        for _, placement in taken:
            for seat in placement.slots:
                held[seat.node.id] += seat.ranks
        assert all(held[item.id] <= item.free_gpus for item in nodes), "a device was given twice"
    chance.shuffle(taken)
    for asked, found in taken:
        site.release(asked, found)
    assert list(site.free_ranks(demand(Layout()))) == before


def test_the_innermost_domain_that_holds_the_job_and_the_tightest_of_its_kind() -> None:
    nodes = [*rack(0, 4), *rack(1, 2), *rack(2, 3, block="b1")]
    assert set(seats(place(demand(Layout(tp=8, dp_shard=2)), nodes))) == {"r1n0", "r1n1"}
    assert set(seats(place(demand(Layout(tp=8, dp_shard=3)), nodes))) == {"r2n0", "r2n1", "r2n2"}
    whole = place(demand(Layout(tp=8, dp_shard=6)), nodes)
    assert set(seats(whole)) == {f"r0n{at}" for at in range(4)} | {"r1n0", "r1n1"}, "one block, not both"
    assert isinstance(whole, Placement) and whole.choice is not None and whole.choice.inside == "block b0"


def test_ranks_follow_the_topology_not_names() -> None:
    nodes = [node(f"n{at}", where=("", "b0", f"r{at % 2}", "")) for at in range(4)]
    outcome = place(demand(Layout(dp_shard=32)), nodes)
    assert isinstance(outcome, Placement)
    assert [seat.node.domains[2] for seat in outcome.slots] in (["r0", "r0", "r1", "r1"], ["r1", "r1", "r0", "r0"])


def test_groups_that_say_most_are_kept_together_whatever_their_place_in_the_layout() -> None:
    talk = (Axis("dp_shard", 8, 1e9), Axis("dp_replicate", 2, 1e7), Axis("pp", 2, 5e9, is_chain=True))
    nodes = [*rack(0, 2), *rack(1, 2, block="b1")]
    outcome = place(Demand(32, 1, "cuda", 1, axes=talk), nodes)
    assert isinstance(outcome, Placement) and outcome.choice is not None
    assert [axis.name for axis in outcome.choice.axes] == ["pp", "dp_shard", "dp_replicate"]
    by_rank = spots(outcome)
    assert all(by_rank[rank].node == by_rank[rank + 16].node for rank in range(16)), "stages of one pipeline"
    assert sorted(number for seat in outcome.slots for number in seat.rank_numbers) == list(range(32))


def test_required_waits_and_says_what_there_is() -> None:
    nodes = [*rack(0, 2, free=4), *rack(1, 2, free=4)]
    asked = demand(Layout(tp=4, dp_shard=4), required=Level.RACK)
    busy = place(asked, nodes)
    assert isinstance(busy, Unplaceable) and busy.reason is Shortage.RESOURCES
    assert "all in one rack; 16 are free, but the rack with most of them has 8" in busy.message
    large = place(demand(Layout(tp=4, dp_shard=5), required=Level.RACK), [*nodes, *rack(2, 1)])
    assert isinstance(large, Unplaceable) and large.reason is Shortage.TOO_LARGE
    assert "the largest rack holds 16 when nothing else runs" in large.message
    unknown = place(demand(Layout(tp=4, dp_shard=2), required=Level.ZONE), rack(0, 2))
    assert isinstance(unknown, Unplaceable) and "the nodes have no zone label" in unknown.message
    assert isinstance(place(demand(Layout(tp=4, dp_shard=2), required=Level.GPU_DOMAIN), rack(0, 2)), Placement)
    assert fits_empty_cluster(asked, nodes) and not fits_empty_cluster(
        demand(Layout(tp=4, dp_shard=5), required=Level.RACK), nodes
    )


def test_preferred_costs_communication_if_it_must() -> None:
    nodes = [*rack(0, 4, free=2), *rack(1, 1, block="b1"), *rack(2, 1, free=4, block="b1")]
    layout = Layout(dp_shard=8)
    assert seats(place(demand(layout), nodes)) == {"r1n0": 8}
    spread_out = place(demand(Layout(dp_shard=12), preferred=Level.NODE), nodes)
    assert seats(spread_out) == {"r1n0": 8, "r2n0": 4}
    lone = [*rack(0, 3, free=4), *rack(1, 1, block="b0"), *rack(2, 1, block="b0")]
    assert {name[:2] for name in seats(place(demand(Layout(dp_shard=12), preferred=Level.RACK), lone))} == {"r0"}


def test_tp_across_nodes_only_where_they_are_one_gpu_domain_and_it_is_allowed() -> None:
    nodes = [node(f"n{at}", 4, ("", "", "", f"nvl{at // 2}"), gpus=4) for at in range(4)]
    torn = place(demand(Layout(tp=8, dp_shard=2)), nodes)
    assert isinstance(torn, Unplaceable) and torn.reason is Shortage.TOO_LARGE
    outcome = place(demand(Layout(tp=8, dp_shard=2), segment_within=Level.GPU_DOMAIN), nodes)
    assert isinstance(outcome, Placement)
    assert [seat.node.name[:2] for seat in outcome.slots] in (["n0", "n1", "n2", "n3"], ["n2", "n3", "n0", "n1"])


def test_spread_keeps_mirrors_out_of_the_rack() -> None:
    nodes = [*rack(0, 4), *rack(1, 4)]
    together = place(demand(Layout(dp_shard=32)), nodes)
    assert {name[:2] for name in seats(together)} == {"r0"}
    apart = place(demand(Layout(dp_shard=32), spread=Level.RACK), nodes)
    assert sorted(name[:2] for name in seats(apart)) == ["r0", "r0", "r1", "r1"]
    two = place(demand(Layout(dp_shard=8), spread=Level.NODE), nodes)
    assert sorted(seats(two).values()) == [4, 4]
    assert isinstance(place(demand(Layout(), required=Level.NODE, spread=Level.NODE), rack(0, 4)), Unplaceable)
    refused = place(demand(Layout(dp_shard=8), spread=Level.RACK), rack(0, 4))
    assert isinstance(refused, Unplaceable) and "in too few domains of the level rack" in refused.message


def test_a_node_of_which_nothing_is_known_stands_alone() -> None:
    nodes = [*rack(0, 1), *rack(1, 2), node("x", where=("", "b0", "", "")), node("y", where=("", "b0", "", ""))]
    outcome = place(demand(Layout(tp=8, dp_shard=2), required=Level.RACK), nodes)
    assert set(seats(outcome)) == {"r1n0", "r1n1"}


def test_a_lost_seat_goes_near_to_the_others() -> None:
    nodes = [*rack(0, 1, free=8), *rack(1, 1, free=4), *rack(2, 1, free=2, block="b1")]
    near = place_replacements(demand(Layout(dp_shard=4)), [2], nodes, [("", "b0", "r0", "")])
    assert seats(near) == {"r0n0": 2}
    asked = demand(Layout(dp_shard=4), required=Level.RACK)
    refused = place_replacements(asked, [2], nodes, [("", "b0", "r9", "")])
    assert (
        isinstance(refused, Unplaceable)
        and "no other node in the rack of the others has capacity for 2" in refused.message
    )
    alone = place_replacements(
        dataclasses.replace(asked, required=Level.GPU_DOMAIN), [2], nodes, [("", "b0", "r0", "")]
    )
    assert isinstance(alone, Unplaceable), "a node that is said to be in no GPU domain is one by itself"


def test_why_these_nodes_is_told_with_what_was_rejected() -> None:
    nodes = [*rack(0, 1), *rack(1, 1), *rack(2, 3, block="b1"), *rack(3, 4, block="b1")]
    outcome = place(demand(Layout(tp=8, dp_shard=3)), nodes)
    assert isinstance(outcome, Placement) and outcome.choice is not None
    choice = outcome.choice
    assert choice.inside == "rack b1/r2" and choice.broken == 0
    assert [(axis.name, axis.leaves) for axis in choice.axes] == [("tp", Level.DEVICE), ("dp_shard", Level.GPU_DOMAIN)]
    assert (
        choice.rejected[0].what == "one node" and choice.rejected[0].why == "the largest has capacity for 8 of 24 ranks"
    )


def test_a_large_job_is_placed_soon() -> None:
    nodes = [node(f"n{at:05}", at % 9, ("z", f"b{at // 256}", f"r{at // 16}", "")) for at in range(4000)]
    asked = demand(Layout(tp=8, dp_shard=32))
    started_s = time.perf_counter()
    assert isinstance(place(asked, nodes), Placement)
    assert time.perf_counter() - started_s < 1.0  # a tenth of it where nothing else runs
