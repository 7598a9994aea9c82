"""Placement of ranks in clusters of blocks, racks and nodes: invariants, and the effect of each field of the spec."""

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


def ranks_by_node(outcome: Placement | Unplaceable) -> dict[str, int]:
    assert isinstance(outcome, Placement), outcome
    return {slot.node.name: slot.ranks for slot in outcome.slots}


def spots_by_rank(outcome: Placement) -> list[Spot]:
    """Return the spot of each rank."""
    found = dict[int, Spot]()
    for number, slot in enumerate(outcome.slots):
        where = slot.node.domains
        # As in the policy: an unlabeled level has one domain, but a node without a GPU domain is its own domain.
        spot = Spot(number, (*where[:3], where[3] or f"alone {number}"))
        for rank in slot.rank_numbers or range(len(found), len(found) + slot.ranks):
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


@settings(max_examples=60)
@given(clusters(), layouts, levels, levels, st.sampled_from([None, None, Level.NODE, Level.RACK]), st.booleans())
def test_a_placement_meets_each_demand(
    nodes: list[Node], layout: Layout, required: Level | None, preferred: Level | None, spread: Level | None, wide: bool
) -> None:
    within = Level.GPU_DOMAIN if wide else Level.NODE
    request = demand(layout, required=required, preferred=preferred, spread=spread, segment_within=within)
    outcome = place(request, nodes)
    assert outcome == place(request, list(reversed(nodes))), "the order of the nodes does not matter"
    if isinstance(outcome, Unplaceable):
        assert outcome.message
        return
    assert sum(slot.ranks for slot in outcome.slots) == layout.world_size, "the gang is complete"
    assert len({slot.node.id for slot in outcome.slots}) == len(outcome.slots)
    assert all(0 < slot.ranks <= slot.node.free_gpus and not slot.node.is_control for slot in outcome.slots)
    ranks = spots_by_rank(outcome)
    for first in range(0, len(ranks), layout.tp):
        group = ranks[first : first + layout.tp]
        assert len({spot.node for spot in group} if not wide else {spot.domains for spot in group}) == 1, (
            "a TP group is split"
        )
    used = [
        slot.node.domains[: DOMAIN_LEVELS.index(required) + 1] for slot in outcome.slots if required in DOMAIN_LEVELS
    ]
    assert len(set(used)) <= 1 and (required is not Level.NODE or len(outcome.slots) == 1)
    if spread is not None:
        apart = [slot.node.name if spread is Level.NODE else slot.node.domains[:3] for slot in outcome.slots]
        assert all(2 * apart.count(one) <= len(apart) for one in apart), "mirrors are in the domain of their nodes"
    assert outcome.choice is not None
    assert outcome.choice.communication_s == pytest.approx(spelled_out(request.axes, ranks, GPU_LINKS), rel=1e-9)
    assert PlacementChoice.from_json(outcome.choice.to_json()) == outcome.choice


@settings(max_examples=30)
@given(clusters(), st.lists(layouts, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_capacity_is_allocated_until_it_is_released(
    nodes: list[Node], layouts_to_place: list[Layout], chance: random.Random
) -> None:
    index, placed = NodeIndex(nodes), list[tuple[Demand, Placement]]()
    before = list(index.free_ranks(demand(Layout())))
    for layout in layouts_to_place:
        request = demand(layout)
        if isinstance(found := place(request, index), Placement):
            index.allocate(request, found)
            placed.append((request, found))
        assert all(free >= 0 for free in index.free_ranks(request))
        allocated = {item.id: 0 for item in nodes}
        for _, placement in placed:
            for slot in placement.slots:
                allocated[slot.node.id] += slot.ranks
        assert all(allocated[item.id] <= item.free_gpus for item in nodes), "a device was allocated twice"
    chance.shuffle(placed)
    for request, found in placed:
        index.release(request, found)
    assert list(index.free_ranks(demand(Layout()))) == before


def test_a_job_gets_the_innermost_domain_and_the_tightest_of_that_level() -> None:
    nodes = [*rack(0, 4), *rack(1, 2), *rack(2, 3, block="b1")]
    assert set(ranks_by_node(place(demand(Layout(tp=8, dp_shard=2)), nodes))) == {"r1n0", "r1n1"}
    assert set(ranks_by_node(place(demand(Layout(tp=8, dp_shard=3)), nodes))) == {"r2n0", "r2n1", "r2n2"}
    whole = place(demand(Layout(tp=8, dp_shard=6)), nodes)
    assert set(ranks_by_node(whole)) == {f"r0n{at}" for at in range(4)} | {"r1n0", "r1n1"}, "one block is enough"
    assert isinstance(whole, Placement) and whole.choice is not None and whole.choice.inside == "block b0"


def test_ranks_follow_the_topology_and_not_the_names() -> None:
    nodes = [node(f"n{at}", where=("", "b0", f"r{at % 2}", "")) for at in range(4)]
    outcome = place(demand(Layout(dp_shard=32)), nodes)
    assert isinstance(outcome, Placement)
    assert [slot.node.domains[2] for slot in outcome.slots] in (["r0", "r0", "r1", "r1"], ["r1", "r1", "r0", "r0"])


def test_groups_with_the_most_traffic_share_a_node_in_any_layout() -> None:
    axes_by_traffic = (Axis("dp_shard", 8, 1e9), Axis("dp_replicate", 2, 1e7), Axis("pp", 2, 5e9, is_chain=True))
    nodes = [*rack(0, 2), *rack(1, 2, block="b1")]
    outcome = place(Demand(32, 1, "cuda", 1, axes=axes_by_traffic), nodes)
    assert isinstance(outcome, Placement) and outcome.choice is not None
    assert [axis.name for axis in outcome.choice.axes] == ["pp", "dp_shard", "dp_replicate"]
    by_rank = spots_by_rank(outcome)
    assert all(by_rank[rank].node == by_rank[rank + 16].node for rank in range(16)), "stages of one pipeline"
    assert sorted(number for slot in outcome.slots for number in slot.rank_numbers) == list(range(32))


def test_a_required_level_waits_and_reports_the_capacity() -> None:
    nodes = [*rack(0, 2, free=4), *rack(1, 2, free=4)]
    request = demand(Layout(tp=4, dp_shard=4), required=Level.RACK)
    busy = place(request, nodes)
    assert isinstance(busy, Unplaceable) and busy.reason is Shortage.RESOURCES
    assert "all in one rack; 16 are free, but the rack with most of them has 8" in busy.message
    large = place(demand(Layout(tp=4, dp_shard=5), required=Level.RACK), [*nodes, *rack(2, 1)])
    assert isinstance(large, Unplaceable) and large.reason is Shortage.TOO_LARGE
    assert "the largest rack holds 16 when nothing else runs" in large.message
    unknown = place(demand(Layout(tp=4, dp_shard=2), required=Level.ZONE), rack(0, 2))
    assert isinstance(unknown, Unplaceable) and "the nodes have no zone label" in unknown.message
    assert isinstance(place(demand(Layout(tp=4, dp_shard=2), required=Level.GPU_DOMAIN), rack(0, 2)), Placement)
    assert fits_empty_cluster(request, nodes) and not fits_empty_cluster(
        demand(Layout(tp=4, dp_shard=5), required=Level.RACK), nodes
    )


def test_a_preferred_level_may_cost_communication() -> None:
    nodes = [*rack(0, 4, free=2), *rack(1, 1, block="b1"), *rack(2, 1, free=4, block="b1")]
    layout = Layout(dp_shard=8)
    assert ranks_by_node(place(demand(layout), nodes)) == {"r1n0": 8}
    spread_out = place(demand(Layout(dp_shard=12), preferred=Level.NODE), nodes)
    assert ranks_by_node(spread_out) == {"r1n0": 8, "r2n0": 4}
    lone = [*rack(0, 3, free=4), *rack(1, 1, block="b0"), *rack(2, 1, block="b0")]
    assert {name[:2] for name in ranks_by_node(place(demand(Layout(dp_shard=12), preferred=Level.RACK), lone))} == {
        "r0"
    }


def test_a_tp_group_spans_nodes_only_in_a_gpu_domain_and_if_allowed() -> None:
    nodes = [node(f"n{at}", 4, ("", "", "", f"nvl{at // 2}"), gpus=4) for at in range(4)]
    split = place(demand(Layout(tp=8, dp_shard=2)), nodes)
    assert isinstance(split, Unplaceable) and split.reason is Shortage.TOO_LARGE
    outcome = place(demand(Layout(tp=8, dp_shard=2), segment_within=Level.GPU_DOMAIN), nodes)
    assert isinstance(outcome, Placement)
    assert [slot.node.name[:2] for slot in outcome.slots] in (["n0", "n1", "n2", "n3"], ["n2", "n3", "n0", "n1"])


def test_spread_places_mirrors_in_another_rack() -> None:
    nodes = [*rack(0, 4), *rack(1, 4)]
    together = place(demand(Layout(dp_shard=32)), nodes)
    assert {name[:2] for name in ranks_by_node(together)} == {"r0"}
    apart = place(demand(Layout(dp_shard=32), spread=Level.RACK), nodes)
    assert sorted(name[:2] for name in ranks_by_node(apart)) == ["r0", "r0", "r1", "r1"]
    two = place(demand(Layout(dp_shard=8), spread=Level.NODE), nodes)
    assert sorted(ranks_by_node(two).values()) == [4, 4]
    assert isinstance(place(demand(Layout(), required=Level.NODE, spread=Level.NODE), rack(0, 4)), Unplaceable)
    refused = place(demand(Layout(dp_shard=8), spread=Level.RACK), rack(0, 4))
    assert isinstance(refused, Unplaceable) and "in too few domains of the level rack" in refused.message


def test_a_node_without_labels_is_its_own_domain() -> None:
    nodes = [*rack(0, 1), *rack(1, 2), node("x", where=("", "b0", "", "")), node("y", where=("", "b0", "", ""))]
    outcome = place(demand(Layout(tp=8, dp_shard=2), required=Level.RACK), nodes)
    assert set(ranks_by_node(outcome)) == {"r1n0", "r1n1"}


def test_a_substitute_is_near_the_other_nodes() -> None:
    nodes = [*rack(0, 1, free=8), *rack(1, 1, free=4), *rack(2, 1, free=2, block="b1")]
    near = place_replacements(demand(Layout(dp_shard=4)), [2], nodes, [("", "b0", "r0", "")])
    assert ranks_by_node(near) == {"r0n0": 2}
    request = demand(Layout(dp_shard=4), required=Level.RACK)
    refused = place_replacements(request, [2], nodes, [("", "b0", "r9", "")])
    assert (
        isinstance(refused, Unplaceable)
        and "no other node in the rack of the others has capacity for 2" in refused.message
    )
    alone = place_replacements(
        dataclasses.replace(request, required=Level.GPU_DOMAIN), [2], nodes, [("", "b0", "r0", "")]
    )
    assert isinstance(alone, Unplaceable), "a node without a GPU domain is its own domain"


def test_a_choice_lists_its_cost_and_rejected_domains() -> None:
    nodes = [*rack(0, 1), *rack(1, 1), *rack(2, 3, block="b1"), *rack(3, 4, block="b1")]
    outcome = place(demand(Layout(tp=8, dp_shard=3)), nodes)
    assert isinstance(outcome, Placement) and outcome.choice is not None
    choice = outcome.choice
    assert choice.inside == "rack b1/r2" and choice.broken == 0
    assert [(axis.name, axis.leaves) for axis in choice.axes] == [("tp", Level.DEVICE), ("dp_shard", Level.GPU_DOMAIN)]
    assert (
        choice.rejected[0].what == "one node" and choice.rejected[0].why == "the largest has capacity for 8 of 24 ranks"
    )


def test_a_large_job_is_placed_within_a_second() -> None:
    nodes = [node(f"n{at:05}", at % 9, ("z", f"b{at // 256}", f"r{at // 16}", "")) for at in range(4000)]
    request = demand(Layout(tp=8, dp_shard=32))
    started_s = time.process_time()
    assert isinstance(place(request, nodes), Placement)
    assert time.process_time() - started_s < 1.0  # A tenth of this on an idle machine.
