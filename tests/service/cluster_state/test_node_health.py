"""Node health, from the events of a supervisor to quarantine, with an in-memory cluster and a real SQLite store."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regroup.service.cluster_state.node_health import closed, faults_in
from regroup.service.controller.controller import Controller
from regroup.service.domain.author import Author
from regroup.service.domain.states import JobState
from regroup.service.domain.topology import MACHINE_LABEL
from regroup.service.policy.detection.node_quarantine import NodeEvent, NodeEventKind, QuarantinePolicy, silence_key
from regroup.service.ports.cluster import Node, supervisor_name
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.settings import Settings
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.records import JobRow, NewJob
from regroup.service.store.store import Store
from tests.support.doubles.fake_cluster import FakeCluster, FakeSupervisor
from tests.support.servers.stores import open_store

RULE = QuarantinePolicy(3600.0, 600.0)


def node(number: int) -> Node:
    return Node(f"{number}" * 40, f"local-{number}", "10.0.0.1", cpus=2, free_cpus=2)


def incident(number: int, reason: str, node_id: str, evidence: Any = None) -> dict[str, Any]:
    return {"id": f"i{number}", "cause": f"{reason} there", "reason": reason, "node_id": node_id, "evidence": evidence}


def event(kind: str, data: dict[str, Any], key: str = "k", time_s: float = 50.0) -> SupervisorEvent:
    return SupervisorEvent(1, key, kind, 1, time_s, data)


def test_incidents_and_notes_that_name_a_node_are_faults_of_the_node() -> None:
    reported = [
        event("incident", incident(1, "agent_lost", "n1")),
        event("incident", incident(1, "agent_lost", "n1")),
        event("incident", incident(2, "rank_exit", "n1", {"out_of_memory": True}), time_s=1e12),
        event("incident", incident(3, "rank_exit", "n1")),
        event("incident", incident(4, "user_error", "n1", {"error_class": "user"})),
        event("incident", incident(5, "agent_lost", "of another job")),
        event("incident", {"id": "i6", "cause": "SIGKILL", "evidence": "SIGKILL"}),  # malformed
        event("note", {"kind": "stuck", "node": "local-1", "pids": [7]}, "note:1"),
        event("note", {"kind": "progress", "node": "local-1"}),
        event("note", {"kind": "condition", "node": "local-1", "what": "device", "message": "GPU 0 is lost"}, "note:2"),
        event("note", {"kind": "condition", "node": "local-1", "what": "device", "message": ""}),
        event("note", {"kind": "condition", "node": "local-1", "what": "disk", "message": "3 MiB are free for /tmp"}),
        event("step", {"step": 1}),
    ]
    found = faults_in("j", reported, {"n1": "m1", "local-1": "m1"}, 60.0)
    assert [(fault.kind, fault.key, fault.time_s) for fault in found] == [
        (NodeEventKind.AGENT_LOST, "incident:i1", 50.0),
        (NodeEventKind.AGENT_LOST, "incident:i1", 50.0),
        (NodeEventKind.OUT_OF_MEMORY, "incident:i2", 60.0),
        (NodeEventKind.UNKILLABLE, "j:note:1", 50.0),
        (NodeEventKind.DEVICE, "j:note:2", 50.0),
    ]
    assert {(fault.node, fault.job_id) for fault in found} == {("m1", "j")} and found[0].message == "agent_lost there"


def test_a_machine_is_recognized_under_another_node_name() -> None:
    losses = [NodeEvent("m1", NodeEventKind.NODE_LOST, 100.0 * n, f"{n}") for n in (1, 2, 3)]
    before = replace(node(1), labels={MACHINE_LABEL: "m1"})
    again = replace(before, id="9" * 40, name="10.0.0.9")
    assert [bool(each.closed_reason) for each in closed([before, again, node(2)], losses, 301.0, RULE)] == [
        True,
        True,
        False,
    ]


# ---------------------------------------------------------------- the controller


class HealthSetup:
    """A store, a cluster of two nodes with two CPUs each, and a controller."""

    def __init__(self, store: Store, cluster: FakeCluster) -> None:
        self.store, self.cluster = store, cluster

    async def submit(self, name: str, dp: int = 2, **fields: Any) -> str:
        training = {"global_batch": 8, "micro_batch": 1, "sequence": 16, "steps": 10}
        workload = {"kind": "builtin", "data": {"train": ["/data/*.txt"]}}
        spec = parse_spec({"name": name, "workload": workload, "training": training, "layout": {"dp": dp}, **fields})
        new = NewJob(f"j-{name}", spec, f"file:///s/jobs/j-{name}")
        return (await self.store.submissions.submit(new, now=time.time(), author=Author("test"))).id

    async def until(self, job_id: str, *states: JobState) -> JobRow:
        async with asyncio.timeout(10):
            while True:
                mark = self.store.changes.mark()
                if (job := await self.store.job(job_id)).state in states:
                    return job
                await self.store.changes.wait(job_id, mark, 0.5)

    async def started(self, job_id: str) -> tuple[FakeSupervisor, list[str]]:
        """Wait until the job starts. Return its supervisor and the names of its nodes."""
        await self.until(job_id, JobState.STARTING, JobState.RUNNING)
        supervisor = self.cluster.supervisors[supervisor_name(job_id)]
        return supervisor, [node["name"] for node in supervisor.payload["nodes"]]

    async def unmet(self, job_id: str, reason: str) -> str:
        """Wait until the job is queued for this reason, and return the message."""
        async with asyncio.timeout(10):
            while True:
                for condition in (await self.store.job(job_id)).conditions:
                    if condition.reason == reason:
                        return condition.message
                await asyncio.sleep(0.02)

    async def fail_and_end(self, job_id: str, **fields: Any) -> None:
        """Emit an incident on the node of a job, and end the job."""
        supervisor, _ = await self.started(job_id)
        node_id = supervisor.payload["nodes"][0]["node_id"]
        await supervisor.emit(
            "incident", f"incident:{job_id}", **{**incident(0, "agent_lost", node_id), "id": job_id, **fields}
        )
        await supervisor.state("FAILED", "budget_exhausted", "too often")
        await self.until(job_id, JobState.FAILED)


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncGenerator[HealthSetup]:
    settings = Settings(state_dir=tmp_path, sync_wait_s=5, lease_s=1.5)
    store = await open_store(settings.database_url)
    cluster = FakeCluster([node(1), node(2)])
    task = asyncio.create_task(Controller(store, cluster, settings).run())
    yield HealthSetup(store, cluster)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await store.close()


def long_ago(count: int, name: str = "local-1") -> list[NodeEvent]:
    """Return node losses of some minutes ago."""
    now = time.time()
    return [NodeEvent(name, NodeEventKind.NODE_LOST, now - 60 * n - 60, f"old:{n}") for n in range(count)]


async def note(store: Store, events: list[NodeEvent]) -> None:
    for event in events:
        await store.nodes.record_order(event)


async def test_a_node_that_fails_repeatedly_is_quarantined_with_a_message(setup: HealthSetup) -> None:
    await note(setup.store, long_ago(2))
    first = await setup.submit("first")
    supervisor, names = await setup.started(first)
    assert names == ["local-1"], "two failures are below the limit"
    assert supervisor.payload["preflight"] is True
    await setup.fail_and_end(first)
    recorded = [event for event in await setup.store.nodes.events() if event.job_id == first]
    assert [(event.node, event.kind) for event in recorded] == [("local-1", NodeEventKind.AGENT_LOST)]
    assert (await setup.started(await setup.submit("second")))[1] == ["local-2"]
    message = await setup.unmet(await setup.submit("large", dp=4), "nodes_closed")
    assert "local-1 is quarantined until" in message and "1 x agent_lost" in message
    before = (await setup.store.job("j-large")).version
    await asyncio.sleep(0.5)  # Time for several passes of the controller.
    assert (await setup.store.job("j-large")).version == before, "the job waits without further attempts"
    await setup.store.nodes.record_order(NodeEvent("local-1", NodeEventKind.UNCORDONED, time.time(), "u", actor="ann"))
    await setup.fail_and_end("j-second", reason="user_error")
    assert (await setup.started("j-large"))[1] == ["local-1", "local-2"]


async def test_a_cordoned_node_keeps_its_job_and_gets_no_new_one(setup: HealthSetup) -> None:
    first = await setup.submit("first")
    supervisor, _ = await setup.started(first)
    order = NodeEvent("local-1", NodeEventKind.CORDONED, time.time(), "c", actor="ann", message="fan")
    await setup.store.nodes.record_order(order)
    assert (await setup.started(await setup.submit("second")))[1] == ["local-2"]
    assert "local-1 is cordoned by ann: fan" in await setup.unmet(await setup.submit("third"), "resources")
    await supervisor.state("RUNNING", "first_step")
    await setup.until(first, JobState.RUNNING)


async def test_a_node_that_fails_its_preflight_check_is_closed_before_use(setup: HealthSetup) -> None:
    setup.cluster.unfit = {node(1).id: "core 3 multiplies wrongly"}
    async with asyncio.timeout(10):
        while not (events := await setup.store.nodes.events()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert {(event.node, event.kind) for event in events} == {("local-1", NodeEventKind.PREFLIGHT)}
    assert (await setup.started(await setup.submit("first")))[1] == ["local-2"]
    assert "core 3 multiplies wrongly" in await setup.unmet(await setup.submit("large", dp=4), "nodes_closed")


async def test_an_unresponsive_node_opens_when_no_process_of_the_job_is_left(setup: HealthSetup) -> None:
    now = time.time()
    silent = [
        NodeEvent(f"local-{n}", NodeEventKind.SILENT, now, silence_key(node_id, "reservation"), job)
        for n, node_id, job in (
            (1, node(1).id, "j-gone"),
            (2, node(2).id, "j-other"),
            (2, "f" * 40, "j-gone"),  # The machine rejoined as another node, which gives no proof.
        )
    ]
    await note(setup.store, silent)
    job = await setup.submit("waits")
    assert "local-1 is unresponsive: ranks may run there until" in await setup.unmet(job, "nodes_closed")
    setup.cluster.clear = {(node(1).id, "j-gone"), (node(2).id, "j-gone")}
    assert (await setup.started(job))[1] == ["local-1"]
    (proof,) = [event for event in await setup.store.nodes.events() if event.kind is NodeEventKind.CLEARED]
    assert (proof.node, proof.job_id) == ("local-1", "j-gone")


async def test_an_injected_fault_is_not_a_fault_of_the_node(setup: HealthSetup) -> None:
    faults = [{"at": {"rank": 0, "step": 1, "phase": "forward"}, "do": "kill_agent"}]
    job = await setup.submit("drill", faults=faults)
    await setup.fail_and_end(job)
    assert await setup.store.nodes.events() == []
