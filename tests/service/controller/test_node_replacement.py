"""The replacement of lost nodes of a live job. A failed replacement leaves no rows and no reservations."""

import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from regroup.service.cluster_state.allocations import JobAllocations, allocate, create_reservations, reservation_of
from regroup.service.controller.leader_context import LeaderContext
from regroup.service.controller.node_replacement import ReplacementReconciler, replace_lost_nodes
from regroup.service.domain.author import Author
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.policy.detection.node_quarantine import NodeEvent, NodeEventKind
from regroup.service.policy.scheduling.decide import Admission, decide, sizes_of
from regroup.service.policy.scheduling.entries import WaitingJob
from regroup.service.ports.cluster import Node
from regroup.service.settings import Settings
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.records import JobRow, Lease, NewJob
from regroup.service.store.store import Store
from tests.support.doubles.fake_cluster import FakeCluster
from tests.support.doubles.leader_context import leader_context
from tests.support.inputs.sync_records import status
from tests.support.servers.stores import open_store

JOB = "j-gpt"


def node(number: int, cpus: int = 2, gpus: int = 0) -> Node:
    name = f"local-{number}"
    return Node(f"{number}" * 40, name, "10.0.0.1", cpus=cpus, free_cpus=cpus, gpus=gpus, free_gpus=gpus)


@dataclass
class Rig:
    """A job of four ranks that runs on two nodes."""

    store: Store
    cluster: FakeCluster
    lease: Lease

    async def run(self, device: str = "cpu", layout: dict[str, object] | None = None, sequence: int = 16) -> None:
        training = {"global_batch": 8, "micro_batch": 1, "sequence": sequence, "steps": 10}
        workload = {"kind": "builtin", "data": {"train": ["/data/*.txt"]}}
        resources = {"device": device}
        spec = parse_spec({"name": "gpt", "workload": workload, "training": training, "layout": layout or {"dp": 4},
                           "resources": resources})  # fmt: skip
        await self.store.submissions.submit(NewJob(JOB, spec, f"file:///s/jobs/{JOB}"), now=1.0, author=Author("test"))
        (turn,) = decide([WaitingJob(JOB, "gpt", sizes_of(spec))], await self.cluster.nodes())
        assert isinstance(turn, Admission)
        placed = check_transition(JOB, JobState.QUEUED, JobState.PLACING, Reason.PLACED)
        job = await self.store.job(JOB)
        await self.store.apply(self.lease, placed, now=2.0, allocate=allocate(job, turn))
        await create_reservations(self.cluster, [reservation_of(row) for row in await self.rows("reservation")])

    async def rows(self, kind: str) -> list:
        return [row for row in await self.store.live_allocations(JOB) if row.kind == kind]

    async def replace(self, *lost: Node) -> str:
        job = await self.store.job(JOB)
        return await replace_lost_nodes(self.leader, job, [one.id for one in lost], time.time())

    @property
    def leader(self) -> LeaderContext:
        return leader_context(self.store, self.lease, self.cluster)

    def reconciler(self, wait_s: float = 30.0) -> ReplacementReconciler:
        async def shrink(job: JobRow, lost: Sequence[str], why: str, now: float) -> bool:
            return False

        leader = leader_context(self.store, self.lease, self.cluster, replacement_wait_s=wait_s)
        return ReplacementReconciler(leader, shrink)

    async def reconcile(self, reconciler: ReplacementReconciler, lost: Sequence[Node], now: float) -> tuple[bool, str]:
        """Run a pass. Return whether the job waits for nodes, and why it has no spare."""
        job = await self.store.job(JOB)
        await reconciler.reconcile(job, status(lost=[each.id for each in lost]), now)
        allocations = JobAllocations(await self.store.live_allocations(JOB))
        return reconciler.concerns(job, allocations), reconciler.intents(job, allocations).no_spare

    async def names(self) -> list[str]:
        return [row.data["name"] for row in await self.rows("reservation")]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncGenerator[Rig]:
    store = await open_store(Settings(state_dir=tmp_path).database_url)
    lease = await store.acquire_lease("test", 60.0)
    assert lease is not None
    yield Rig(store, FakeCluster([node(1), node(2)]), lease)
    await store.close()


async def test_a_substitute_gets_the_ranks_of_the_lost_node(rig: Rig) -> None:
    await rig.run(layout={"dp": 2, "pp": 2, "data_parallel": "ddp"}, sequence=4096)
    before = [row.data["numbers"] for row in await rig.rows("reservation")]
    assert before == [[0, 2], [1, 3]], "stages of one pipeline share a node"
    rig.cluster.add_node(node(3))
    rig.cluster.remove_node(node(1).id)
    assert await rig.replace(node(1)) == ""
    (plan,) = [row.data for row in await rig.rows("supervisor")]
    assert [(each["name"], each["numbers"]) for each in plan["nodes"]] == [("local-3", [0, 2]), ("local-2", [1, 3])]


async def test_a_substitute_has_the_position_of_the_lost_node_in_rank_order(rig: Rig) -> None:
    await rig.run()
    before = {row.node_id: row.name for row in await rig.rows("reservation")}
    rig.cluster.add_node(node(3))
    rig.cluster.remove_node(node(1).id)
    assert await rig.replace(node(1)) == ""
    assert sorted(await rig.names()) == ["local-2", "local-3"]
    (supervisor,) = await rig.rows("supervisor")
    nodes = supervisor.data["nodes"]
    assert [(each["name"], each["ranks"]) for each in nodes] == [("local-3", 2), ("local-2", 2)], (
        "the first is the substitute"
    )
    assert list(nodes[1]["reservations"]) == [before[node(2).id]] and supervisor.data["layout"]["dp_shard"] == 4
    assert {name for each in nodes for name in each["reservations"]} == set(rig.cluster.held)
    assert [row.node_id for row in await rig.rows("agent")] == [node(2).id, node(3).id]
    event = (await rig.store.events(JOB))[-1]
    assert (event.type, event.data) == ("nodes", {"lost": ["local-1"], "taken": ["local-3"]})
    assert await rig.replace(node(1)) == "", "the job no longer has the lost node"
    assert len(await rig.store.events(JOB)) == event.number


async def test_the_remaining_nodes_keep_their_devices(rig: Rig) -> None:
    rig.cluster.remove_node(node(1).id)
    rig.cluster.remove_node(node(2).id)
    for number in (1, 2):
        rig.cluster.add_node(node(number, cpus=4, gpus=2))
    await rig.run("cuda")
    rig.cluster.add_node(node(3, cpus=4, gpus=4))
    rig.cluster.remove_node(node(2).id)
    assert await rig.replace(node(2)) == ""
    (supervisor,) = await rig.rows("supervisor")
    assert [each["devices"] for each in supervisor.data["nodes"]] == [[0, 1], [0, 1]]


async def test_a_node_that_the_cluster_still_has_is_not_replaced_at_once(rig: Rig) -> None:
    await rig.run()
    rig.cluster.add_node(node(3))
    assert await rig.replace(node(1)) == ""
    assert sorted(await rig.names()) == ["local-1", "local-2"]


async def test_a_node_whose_agent_does_not_start_is_replaced(rig: Rig) -> None:
    await rig.run()
    rig.cluster.add_node(node(3))
    reconciler = rig.reconciler()
    assert await rig.reconcile(reconciler, [node(1)], 3.0) == (True, "") and sorted(await rig.names()) == [
        "local-1",
        "local-2",
    ]
    reconciler._lost_since_s = time.monotonic() - 2.0  # pyright: ignore[reportPrivateUsage]
    await rig.reconcile(reconciler, [node(1)], 4.0)
    assert sorted(await rig.names()) == ["local-2", "local-3"]
    assert await rig.reconcile(reconciler, [], 5.0) == (False, "")


async def test_a_missing_substitute_is_reported_after_the_wait(rig: Rig) -> None:
    await rig.run()
    rig.cluster.remove_node(node(1).id)
    for wait_s, is_reported in ((30.0, False), (1e-9, True)):
        _, why = await rig.reconcile(rig.reconciler(wait_s), [node(1)], 3.0)
        assert bool(why) is is_reported


async def test_missing_capacity_is_reported_and_nothing_is_reserved(rig: Rig) -> None:
    await rig.run()
    rig.cluster.add_node(node(3, cpus=1))
    rig.cluster.remove_node(node(1).id)
    why = await rig.replace(node(1))
    assert why.startswith("no other node has capacity for 2 of 4 ranks: ") and "local-3 holds 1" in why
    assert sorted(await rig.names()) == ["local-1", "local-2"]


async def test_a_refused_reservation_changes_nothing(rig: Rig) -> None:
    await rig.run()
    rig.cluster.add_node(node(3))
    rig.cluster.refuse = {node(3).id}
    rig.cluster.remove_node(node(1).id)
    assert "does not hold" in await rig.replace(node(1))
    assert sorted(await rig.names()) == ["local-1", "local-2"]
    assert all("local-3" not in name for name in rig.cluster.held)
    rig.cluster.refuse = set()
    assert await rig.replace(node(1)) == "", "the next attempt succeeds"
    assert sorted(await rig.names()) == ["local-2", "local-3"]


async def test_capacity_allocated_to_another_job_is_not_free(rig: Rig) -> None:
    """Count the rows of the store as well: the cluster may not know the newest allocations yet."""
    await rig.run()
    rig.cluster.add_node(node(3))
    spec = parse_spec({"name": "other", "workload": {"kind": "builtin", "data": {"train": ["/d"]}},
                       "training": {"global_batch": 8, "micro_batch": 1, "sequence": 16, "steps": 10}})  # fmt: skip
    await rig.store.submissions.submit(
        NewJob("j-other", spec, "file:///s/jobs/j-other"), now=1.0, author=Author("test")
    )
    (turn,) = decide([WaitingJob("j-other", "other", sizes_of(spec))], [node(3)])
    assert isinstance(turn, Admission)
    placed = check_transition("j-other", JobState.QUEUED, JobState.PLACING, Reason.PLACED)
    await rig.store.apply(rig.lease, placed, now=2.0, allocate=allocate(await rig.store.job("j-other"), turn))
    rig.cluster.remove_node(node(1).id)
    assert "no other node has capacity" in await rig.replace(node(1))


async def test_a_lost_node_is_recorded_once_and_a_cordoned_node_is_not_used(rig: Rig) -> None:
    await rig.run()
    rig.cluster.remove_node(node(1).id)
    assert "no other node has capacity" in await rig.replace(node(1))
    assert "no other node has capacity" in await rig.replace(node(1)), "the search repeats until a substitute exists"
    (lost,) = await rig.store.nodes.events()
    assert (lost.node, lost.kind, lost.job_id) == ("local-1", NodeEventKind.NODE_LOST, JOB)
    rig.cluster.add_node(node(3))
    order = NodeEvent("local-3", NodeEventKind.CORDONED, 1.0, "c", actor="ann", message="fan")
    await rig.store.nodes.record_order(order)
    assert (await rig.replace(node(1))).endswith("; local-3 is cordoned by ann: fan")
    await rig.store.nodes.record_order(NodeEvent("local-3", NodeEventKind.UNCORDONED, 2.0, "u", actor="ann"))
    assert await rig.replace(node(1)) == "" and sorted(await rig.names()) == ["local-2", "local-3"]


async def test_an_announced_departure_is_not_recorded_as_a_fault(rig: Rig) -> None:
    await rig.run()
    rig.cluster.add_node(node(3))
    rig.cluster.remove_node(node(1).id)
    job = await rig.store.job(JOB)
    assert await replace_lost_nodes(rig.leader, job, [node(1).id], time.time(), is_announced=True) == ""
    assert await rig.store.nodes.events() == []


async def test_an_unresponsive_node_is_fenced_while_the_cluster_still_has_it(rig: Rig) -> None:
    await rig.run()
    rig.cluster.add_node(node(3))
    job = await rig.store.job(JOB)
    assert await replace_lost_nodes(rig.leader, job, [node(1).id], time.time(), is_overdue=True) == ""
    (fault,) = await rig.store.nodes.events()
    assert (fault.node, fault.kind, fault.job_id) == ("local-1", NodeEventKind.SILENT, JOB)
    (fenced,) = [each for each in await rig.leader.health.nodes(time.time()) if each.closed_reason]
    assert fenced.id == node(1).id and "ranks may run there" in fenced.closed_reason


async def test_an_unresponsive_node_that_its_job_keeps_is_not_recorded(rig: Rig) -> None:
    await rig.run()
    job = await rig.store.job(JOB)
    why = await replace_lost_nodes(rig.leader, job, [node(1).id], time.time(), is_overdue=True)
    assert "no other node has capacity" in why and sorted(await rig.names()) == ["local-1", "local-2"]
    assert await rig.store.nodes.events() == []
    rig.cluster.add_node(node(3))
    assert await replace_lost_nodes(rig.leader, job, [node(1).id], time.time(), is_overdue=True) == ""
    assert [each.kind for each in await rig.store.nodes.events()] == [NodeEventKind.SILENT]


async def test_an_unresponsive_node_is_fenced_before_the_supervisor_abandons_it(rig: Rig) -> None:
    await rig.run()
    for wait_s, kinds in ((30.0, []), (1e-9, [NodeEventKind.SILENT])):
        reconciler = rig.reconciler(wait_s)
        reconciler._lost_since_s = time.monotonic() - 2.0  # pyright: ignore[reportPrivateUsage]
        _, why = await rig.reconcile(reconciler, [node(1)], 3.0)
        assert [each.kind for each in await rig.store.nodes.events()] == kinds and bool(why) is bool(kinds)
