import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regroup.service.domain.topology import Node, NodeKind
from regroup.service.policy.placement.place import (
    Demand,
    Placement,
    Shortage,
    Unplaceable,
    fits_empty_cluster,
    place,
    place_replacements,
    with_placement,
)
from regroup.service.policy.scheduling.decide import Admission, Wait, decide, sizes_of
from regroup.service.policy.scheduling.entries import WaitingJob
from regroup.service.spec.job import JobSpec, parse_spec


def node(name: str, cpus: float = 4, free: float | None = None, gpus: float = 0, **fields: object) -> Node:
    plain = Node(name, name, "::1", cpus=cpus, free_cpus=cpus if free is None else free, gpus=gpus, free_gpus=gpus)
    return dataclasses.replace(plain, **fields)


def ranks(count: int, segment: int = 1, device: str = "cpu", cpus: int = 1, memory: int = 0) -> Demand:
    return Demand(count, segment, device, cpus, memory)


def ranks_by_node(outcome: Placement | Unplaceable) -> dict[str, int]:
    assert isinstance(outcome, Placement), outcome
    return {slot.node.name: slot.ranks for slot in outcome.slots}


def test_a_job_gets_the_fewest_nodes_then_the_tightest_fit_with_bandwidth() -> None:
    nodes = [node("big", 8), node("mid", 4), node("small", 2)]
    assert ranks_by_node(place(ranks(2), nodes)) == {"small": 2}
    assert ranks_by_node(place(ranks(3), nodes)) == {"mid": 3}
    assert ranks_by_node(place(ranks(10), nodes)) == {"big": 6, "mid": 4}, (
        "a node with two ranks would be the bottleneck"
    )
    assert ranks_by_node(place(ranks(12), nodes)) == {"big": 8, "mid": 4}
    assert ranks_by_node(place(ranks(14), nodes)) == {"big": 8, "mid": 4, "small": 2}


def test_a_segment_stays_on_one_node() -> None:
    nodes = [node("a", 3), node("b", 3)]
    assert ranks_by_node(place(ranks(4, segment=2), nodes)) == {"a": 2, "b": 2}
    outcome = place(ranks(6, segment=2), nodes)
    assert isinstance(outcome, Unplaceable) and outcome.reason is Shortage.TOO_LARGE
    assert "whole groups of 2" in outcome.message


def test_control_draining_and_dead_nodes_get_no_ranks() -> None:
    nodes = [node("c", is_control=True), node("d", is_draining=True), node("x", alive=False)]
    outcome = place(ranks(1), nodes)
    assert isinstance(outcome, Unplaceable) and outcome.reason is Shortage.NO_NODES


def test_the_shortage_of_each_node_is_listed() -> None:
    nodes = [node("a", 8, free=8, gpus=2), node("b", 8, free=1, gpus=4)]
    busy = place(ranks(4, device="cuda"), nodes)
    assert isinstance(busy, Unplaceable) and busy.reason is Shortage.RESOURCES
    assert [(each.name, each.free_ranks, each.total_ranks, each.limit) for each in busy.nodes] == [
        ("a", 2, 2, "CUDA devices: 2 of 2 free"), ("b", 1, 4, "CPU: 1 of 8 free"),
    ]  # fmt: skip
    assert "a holds 2 (CUDA devices: 2 of 2 free); b holds 1 (CPU: 1 of 8 free)" in busy.message
    large = place(ranks(7, device="cuda"), nodes)
    assert isinstance(large, Unplaceable) and large.reason is Shortage.TOO_LARGE and "hold 6" in large.message


@pytest.mark.parametrize(("count", "end"), [(7, ")"), (8, ")"), (9, "; and 1 more"), (12, "; and 4 more")])
def test_eight_nodes_are_listed_and_the_others_are_counted(count: int, end: str) -> None:
    found = place(ranks(99), [node(f"n{number:02}", 4) for number in range(count)])
    assert isinstance(found, Unplaceable)
    assert len(found.nodes) == min(count, 8)
    assert found.message.endswith(end)


def test_requested_memory_limits_the_ranks_of_a_node() -> None:
    small = node("a", memory_bytes=4 * 2**30, free_memory_bytes=4 * 2**30)
    assert ranks_by_node(place(ranks(2, memory=2 * 2**30), [small])) == {"a": 2}
    assert isinstance(place(ranks(3, memory=2 * 2**30), [small]), Unplaceable)


clusters = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 8), st.booleans()), min_size=0, max_size=6
).map(
    lambda rows: [
        node(f"n{i}", max(cpus, used), free=max(cpus, used) - used, gpus=gpus, is_control=control)
        for i, (cpus, used, gpus, control) in enumerate(rows)
    ]
)
demands = st.builds(
    lambda groups, segment, device, cpus: ranks(groups * segment, segment, device, cpus),
    st.integers(1, 8), st.sampled_from([1, 2, 4]), st.sampled_from(["cpu", "cuda"]), st.integers(1, 3),
)  # fmt: skip


@given(clusters, st.lists(demands, max_size=6))
def test_a_gang_is_placed_completely_or_not_and_shares_no_device(nodes: list[Node], requests: list[Demand]) -> None:
    for demand in requests:
        outcome = place(demand, nodes)
        if isinstance(outcome, Unplaceable):
            assert outcome.message
            continue
        assert sum(slot.ranks for slot in outcome.slots) == demand.ranks
        assert all(slot.ranks % demand.segment == 0 for slot in outcome.slots)
        assert len({slot.node.id for slot in outcome.slots}) == len(outcome.slots)
        nodes = with_placement(nodes, demand, outcome)
        for after in nodes:
            assert after.free_cpus >= 0 and after.free_gpus >= 0, "a device was allocated twice"


@given(clusters, demands)
def test_no_placement_uses_more_nodes_than_needed(nodes: list[Node], demand: Demand) -> None:
    outcome = place(demand, nodes)
    if isinstance(outcome, Placement):
        capacities = sorted((_capacity(demand, each) for each in nodes), reverse=True)
        fewest = next(count for count in range(1, len(capacities) + 1) if sum(capacities[:count]) >= demand.ranks)
        assert len(outcome.slots) == fewest
    else:
        assert sum(_capacity(demand, each) for each in nodes) < demand.ranks


def _capacity(demand: Demand, each: Node) -> int:
    if each.is_control:
        return 0
    free = [each.free_cpus // demand.cpus, *([each.free_gpus] if demand.device == "cuda" else [])]
    return int(min(free)) // demand.segment * demand.segment


arrivals = itertools.count()


def waiting(name: str, dp: object) -> WaitingJob:
    return WaitingJob(name, name, sizes_of(spec(dp)), queued_s=next(arrivals))


def spec(dp: object) -> JobSpec:
    training = {"global_batch": 64, "micro_batch": 1, "sequence": 16, "steps": 10}
    workload = {"kind": "builtin", "data": {"train": ["x"]}}
    return parse_spec({"name": "a", "workload": workload, "training": training, "layout": {"dp": dp}})


def outcomes(queue: list[WaitingJob], nodes: list[Node]) -> list[str]:
    return [
        str(each.layout.world_size) if isinstance(each, Admission) else each.why.reason.value
        for each in decide(queue, nodes)
        if isinstance(each, Admission | Wait)
    ]


def test_jobs_start_in_order_and_an_impossible_job_blocks_no_other() -> None:
    queue = [waiting("huge", 50), waiting("a", 4), waiting("b", 6), waiting("c", 1)]
    assert outcomes(queue, [node("n", 8)]) == ["too_large", "4", "resources", "priority"]


def test_decisions_of_one_pass_share_no_device() -> None:
    assert outcomes([waiting("a", 2), waiting("b", 2), waiting("c", 1)], [node("n", 4)]) == ["2", "2", "resources"]


def test_a_job_is_reduced_for_a_small_cluster_but_waits_for_a_busy_one() -> None:
    elastic = [waiting("a", {"min": 2, "target": 8, "max": 8})]
    assert outcomes(elastic, [node("n", 5)]) == ["5"]
    assert outcomes(elastic, [node("n", 8, free=5)]) == ["resources"]
    assert outcomes(elastic, [node("n", 1)]) == ["too_large"]


def test_a_wait_names_the_job_ahead() -> None:
    decisions = decide([waiting("first", 3), waiting("second", 1)], [node("n", 4, free=2)])
    assert isinstance(decisions[1], Wait) and "'first' is ahead" in decisions[1].why.message


def test_the_check_for_an_empty_cluster_ignores_running_jobs() -> None:
    assert fits_empty_cluster(ranks(4), [node("n", 4, free=0)]) and not fits_empty_cluster(ranks(5), [node("n", 4)])
    assert not fits_empty_cluster(ranks(1), [])


def test_a_substitute_is_the_node_with_the_tightest_fit() -> None:
    nodes = [node("wide", 8), node("tight", 2), node("full", 4, free=1)]
    found = place_replacements(ranks(6), [2], nodes)
    assert isinstance(found, Placement) and ranks_by_node(found) == {"tight": 2}


def test_each_lost_node_gets_its_own_substitute_and_the_largest_first() -> None:
    nodes = [node("a", 4), node("b", 2)]
    found = place_replacements(ranks(8), [2, 4], nodes)
    assert isinstance(found, Placement)
    assert [(slot.node.name, slot.ranks) for slot in found.slots] == [("b", 2), ("a", 4)], (
        "in the order of the lost nodes"
    )
    refused = place_replacements(ranks(8), [4, 4], nodes)
    assert (
        isinstance(refused, Unplaceable) and "no other node has capacity for 4 of 8 ranks: a holds 4" in refused.message
    )


def test_a_substitute_is_never_a_control_or_draining_node() -> None:
    nodes = [node("control", 8, is_control=True), node("leaving", 8, is_draining=True)]
    assert isinstance(place_replacements(ranks(2), [2], nodes), Unplaceable)


def test_a_closed_node_gets_no_ranks_and_is_listed() -> None:
    nodes = [node("a", 2), node("b", 2, closed_reason="cordoned by ann: fan"), node("c", 2)]
    assert ranks_by_node(place(ranks(3), nodes)) == {"a": 2, "c": 1}
    outcome = place(ranks(5), nodes)
    assert isinstance(outcome, Unplaceable) and outcome.reason is Shortage.NODES_CLOSED
    assert outcome.message.startswith(
        "needs 5 ranks of 1 CPU each; the 2 that are open hold 4 when nothing else runs: "
    )
    assert outcome.message.endswith("; b is cordoned by ann: fan")
    too_large = place(ranks(7), nodes)
    assert isinstance(too_large, Unplaceable) and too_large.reason is Shortage.TOO_LARGE
    busy = place(ranks(4), [node("a", 4, free=2), nodes[1]])
    assert isinstance(busy, Unplaceable) and busy.reason is Shortage.RESOURCES and "b is cordoned" in busy.message
    assert not fits_empty_cluster(ranks(5), nodes) and fits_empty_cluster(ranks(4), nodes)


def test_a_cluster_with_only_closed_nodes_has_its_own_reason() -> None:
    many = [node(f"n{number}", 2, closed_reason="quarantined") for number in range(6)]
    outcome = place(ranks(2), many)
    assert isinstance(outcome, Unplaceable) and outcome.reason is Shortage.NODES_CLOSED
    assert outcome.message == (
        "needs 2 ranks of 1 CPU each; the 0 that are open hold 0 when nothing else runs; n0 is quarantined; "
        "n1 is quarantined; n2 is quarantined; n3 is quarantined; and 2 more"
    )


def test_a_substitute_is_never_a_closed_node() -> None:
    outcome = place_replacements(ranks(4), [2], [node("a", 4, closed_reason="quarantined"), node("b", 1)])
    assert isinstance(outcome, Unplaceable) and outcome.message.endswith("; a is quarantined")


def test_a_job_that_needs_closed_nodes_blocks_no_other_job() -> None:
    def spec(name: str, dp: int) -> JobSpec:
        training = {"global_batch": 8, "micro_batch": 1, "sequence": 16, "steps": 10}
        workload = {"kind": "builtin", "data": {"train": ["/data/*.txt"]}}
        return parse_spec({"name": name, "workload": workload, "training": training, "layout": {"dp": dp}})

    nodes = [node("a", 2), node("b", 2, closed_reason="quarantined")]
    first, second = decide(
        [WaitingJob(name, name, sizes_of(spec(name, dp))) for name, dp in (("1", 4), ("2", 2))], nodes
    )
    assert isinstance(first, Wait) and first.why.reason is Shortage.NODES_CLOSED
    assert isinstance(second, Admission)


def test_nodes_with_a_different_kind_get_no_ranks_and_are_listed_with_it() -> None:
    new = {"regroup.io/image": "cu130"}
    nodes = [node("old", 8, labels={"regroup.io/image": "cu128"}), node("new", 2, labels=new), node("bare", 4)]
    request = dataclasses.replace(ranks(2), kind=NodeKind(image="cu130"))
    assert ranks_by_node(place(request, nodes)) == {"new": 2}
    outcome = place(dataclasses.replace(request, ranks=3), nodes)
    assert isinstance(outcome, Unplaceable) and outcome.reason is Shortage.TOO_LARGE
    assert "needs 3 ranks of 1 CPU each, on nodes with image cu130; all 3 nodes together hold 2" in outcome.message
    assert "old holds 0 (has image cu128)" in outcome.message and "bare holds 0 (its labels" in outcome.message
    instead = place_replacements(request, [2], nodes)
    assert ranks_by_node(instead) == {"new": 2}
    assert isinstance(place_replacements(request, [2, 2], nodes), Unplaceable)
    assert not fits_empty_cluster(dataclasses.replace(request, ranks=3), nodes)


def test_a_job_without_a_kind_may_use_any_node() -> None:
    nodes = [node("a", 2, labels={"ray.io/accelerator-type": "H100"}), node("b", 2, labels={"regroup.io/image": "x"})]
    assert ranks_by_node(place(ranks(4), nodes)) == {"a": 2, "b": 2}
    assert ranks_by_node(place(dataclasses.replace(ranks(2), kind=NodeKind("H100")), nodes)) == {"a": 2}
