"""Other nodes for nodes that a job must leave: spares first, then free nodes; never the job's own nodes."""

from dataclasses import replace
from typing import Any

from regroup.service.cluster_state.allocations import JobAllocations, Member
from regroup.service.cluster_state.substitutes import Substitutes, choose_substitutes, promote_spares
from regroup.service.domain.layout import Layout
from regroup.service.policy.placement.place import Unplaceable
from regroup.service.ports.assignment import JobAssignment
from regroup.service.store.rows.records import Allocation, AllocationKind
from tests.support.inputs.queue_inputs import demand, node

JOB = "j-gpt"
SUPERVISOR = Allocation(
    JOB, AllocationKind.SUPERVISOR, f"{JOB}:supervisor", data=JobAssignment(Layout(dp_shard=8), 0).to_json()
)


def reservation(where: str, ranks: int = 4, *, job: str = JOB, name: str = "", **more: Any) -> Allocation:
    data = {"ranks": ranks, "name": where, "cpus": ranks, "gpus": ranks, "numbers": [], **more}
    return Allocation(job, AllocationKind.RESERVATION, name or f"{job}:{where}", where, data)


def nodes(*names: str) -> list[Any]:
    return [node(name, 4) for name in names]


def choose(rows: list[Allocation], leaving: list[str], *names: str) -> Substitutes | Unplaceable:
    own = JobAllocations.select([SUPERVISOR, *rows], JOB)
    members = [Member((row,)) for row in own.rank_reservations if row.node_id in leaving]
    return choose_substitutes(rows, own, demand(8), members, nodes(*names))


def test_a_spare_comes_before_a_free_node() -> None:
    rows = [reservation("a"), reservation("b"), reservation("s", spare=True)]
    found = choose(rows, ["b"], "a", "b", "s", "free")
    assert isinstance(found, Substitutes)
    assert {lost: member.name for lost, member in found.spares.substitutes.items()} == {"b": "s"}
    assert (list(found.placed), found.placement.slots) == ([], ())
    assert [row.is_for_ranks for row in found.spares.promoted] == [True]


def test_nodes_without_a_spare_get_free_nodes() -> None:
    rows = [reservation("a"), reservation("b"), reservation("s", spare=True)]
    found = choose(rows, ["a", "b"], "a", "b", "s", "free")
    assert isinstance(found, Substitutes)
    assert len(found.spares.substitutes) == 1 and len(found.placed) == 1
    assert [slot.node.name for slot in found.placement.slots] == ["free"]


def test_the_own_nodes_and_those_of_other_jobs_are_not_chosen() -> None:
    rows = [reservation("a"), reservation("b"), reservation("c", job="j-other")]
    assert isinstance(choose(rows, ["b"], "a", "b", "c"), Unplaceable)
    found = choose(rows, ["b"], "a", "b", "c", "d")
    assert isinstance(found, Substitutes) and [slot.node.name for slot in found.placement.slots] == ["d"]


def test_a_spare_on_a_node_that_cannot_be_used_is_skipped() -> None:
    spares, leaving = [reservation("s", spare=True)], [Member((reservation("a"),))]
    (usable,) = nodes("s")
    assert promote_spares(spares, leaving, [usable]).substitutes.keys() == {"a"}
    for change in ({"alive": False}, {"is_draining": True}, {"closed_reason": "cordoned"}):
        assert promote_spares(spares, leaving, [replace(usable, **change)]).substitutes == {}


def test_the_smallest_spare_that_fits_is_promoted() -> None:
    spares = [reservation("big", 8, spare=True), reservation("small", 4, spare=True)]
    found = promote_spares(spares, [Member((reservation("a", 3),))], nodes("big", "small"))
    assert found.substitutes["a"].name == "small" and found.released == {"j-gpt:small"}
