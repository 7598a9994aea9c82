"""Spare nodes of a job in controller and supervisor, from the request to the promotion."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.cluster_state.allocations import JobAllocations, Member
from regroup.service.cluster_state.substitutes import promote_spares
from regroup.service.controller.substitution import substitute_nodes
from regroup.service.domain.states import JobState
from regroup.service.observability.prometheus import Metrics
from regroup.service.operations.projects import Projects
from regroup.service.policy.accounting import spare_device_seconds
from regroup.service.policy.detection.node_quarantine import QuarantinePolicy
from regroup.service.settings import Settings
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.records import Allocation, AllocationKind, DrainRow, JobRow, ProjectRow
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.service.supervisor.spare_nodes import SpareNodes
from tests.service.controller.test_controller import ControlSetup, controlled, eventually
from tests.service.controller.test_resize import node
from tests.support.doubles.fake_cluster import FakeCluster, FakeSupervisor
from tests.support.doubles.leader_context import leader_context
from tests.support.doubles.supervised_job import SPEC, FakeNodes, place
from tests.support.inputs.sync_records import assigned, status
from tests.support.servers.stores import open_store

JOB = "j-gpt"


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncGenerator[ControlSetup]:
    store = await open_store(Settings(state_dir=tmp_path).database_url)
    cluster = FakeCluster([node(1), node(2)])
    yield ControlSetup(store, cluster, Settings(state_dir=tmp_path, sync_wait_s=0.2, min_run_s=0))
    await store.close()


@asynccontextmanager
async def running(setup: ControlSetup) -> AsyncGenerator[FakeSupervisor]:
    """Start a job of four ranks that requests one spare."""
    async with controlled(setup):
        await setup.submit(dp=4, recovery={"spares": 1})
        supervisor = await setup.supervisor(JOB)
        await supervisor.state("RUNNING", "first_step")
        await setup.until_state(JOB, JobState.RUNNING)
        setup.cluster.add_node(node(3))
        yield supervisor


async def rows(setup: ControlSetup) -> list[Allocation]:
    return [row for row in await setup.store.live_allocations(JOB) if row.kind == "reservation"]


async def until_spares(setup: ControlSetup, *names: str) -> None:
    async def has_spares() -> bool:
        return sorted({row.data["name"] for row in await rows(setup) if row.is_spare}) == list(names)

    await eventually(has_spares)


async def until_reason(setup: ControlSetup, reason: str) -> JobRow:
    def has_reason(job: JobRow) -> bool:
        return any((each.type, each.reason) == ("SparesReady", reason) for each in job.conditions)

    return await setup.until(JOB, has_reason)


async def test_a_spare_is_allocated_counted_prepared_and_promoted(setup: ControlSetup) -> None:
    async with running(setup) as supervisor:
        (spare,) = await supervisor.wait_for_intent("spares")
        assert (spare["name"], spare["ranks"]) == ("local-3", 2)
        await until_reason(setup, "preparing")
        (project,) = await Projects(setup.store, time.time).list_projects()
        assert (project.allocated, project.running) == (6, 1)
        supervisor.status = status(spares={node(3).id: "ready"})
        job = await until_reason(setup, "ready")
        assert "ready: local-3" in [each.message for each in job.conditions]
        text = (await Metrics(setup.store, QuarantinePolicy(3600.0, 600.0)).render()).decode()
        assert 'regroup_device_seconds_total{class="spare",device="cpu"}' in text

        setup.cluster.calls.clear()
        setup.cluster.remove_node(node(2).id)
        supervisor.status = status(lost=[node(2).id], spares={node(3).id: "ready"})
        await supervisor.state("RECOVERING", "agent_lost")
        await supervisor.wait_for_intent("nodes")
        assert {each["name"]: each["ranks"] for each in supervisor.intents["nodes"]} == {"local-1": 2, "local-3": 2}
        assert [row.data["name"] for row in await rows(setup) if row.is_for_ranks] == ["local-1", "local-3", "local-3"]
        supervisor.status = status()
        await until_spares(setup)
        done = [call for call in setup.cluster.calls if "33333333" in call]
        assert done == [], "the promoted spare keeps its reservations and its agent"
        await until_reason(setup, "no_room")
        allocated = [event.data["ranks"] for event in await setup.store.events(JOB) if event.type == "spares"]
        assert allocated == [{"local-3": 2}, {}]


async def test_a_spare_that_is_drained_or_unfit_is_released(
    setup: ControlSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regroup.service.controller.spares._SEARCH_EVERY_S", 0.0)
    async with running(setup) as supervisor:
        await until_spares(setup, "local-3")
        now = time.time()
        await setup.store.nodes.request_drain(DrainRow(node(3).id, "local-3", "disks", "test", now, now + 60))
        await until_spares(setup)
        await eventually(lambda: any("release" in call and "33333333" in call for call in setup.cluster.calls))
        await setup.store.nodes.delete_drains([node(3).id])
        await until_spares(setup, "local-3")
        supervisor.status = status(spares={node(3).id: "no such interpreter"})
        await until_spares(setup)
        assert "no room" not in (await until_reason(setup, "no_room")).message


async def test_a_spare_replaces_a_drained_node(setup: ControlSetup) -> None:
    async with running(setup) as supervisor:
        await until_spares(setup, "local-3")
        now = time.time()
        await setup.store.nodes.request_drain(DrainRow(node(2).id, "local-2", "disks", "test", now, now + 60))
        await supervisor.wait_for_intent("change")
        nodes = supervisor.intents["nodes"]
        assert {each["name"]: each["ranks"] for each in nodes} == {"local-1": 2, "local-3": 2}
        supervisor.status = status(nodes=[each["node_id"] for each in nodes], former=[])

        async def has_left() -> bool:
            return {row.data["name"] for row in await rows(setup)} == {"local-1", "local-3"}

        await eventually(has_left)
        assert not any(row.is_spare for row in await rows(setup))
        assert not any("release" in call and "33333333" in call for call in setup.cluster.calls)


async def test_a_spare_whose_promotion_fails_is_released_with_its_agent(setup: ControlSetup) -> None:
    async with running(setup):
        await until_spares(setup, "local-3")
        lease = await setup.store.acquire_lease("another", 0.1)
        assert lease is not None
        setup.cluster.refuse.add(node(3).id)
        setup.cluster.held = {name: held for name, held in setup.cluster.held.items() if held.node_id != node(3).id}
        leaving = [
            each for each in JobAllocations(await setup.store.live_allocations(JOB)).members if each.name == "local-2"
        ]
        job = await setup.store.job(JOB)
        found = await substitute_nodes(
            leader_context(setup.store, lease, setup.cluster), job, leaving, await setup.cluster.nodes(), time.time()
        )
        assert isinstance(found, str) and "does not hold" in found
        remaining = [(row.kind, row.node_id[:1]) for row in await setup.store.live_allocations(JOB)]
        assert (
            ("agent", "3") not in remaining
            and ("reservation", "3") not in remaining
            and ("reservation", "2") in remaining
        )


async def test_queued_jobs_and_quotas_come_before_spares(setup: ControlSetup) -> None:
    await setup.store.queue.put_project(ProjectRow("default", limit=5))
    async with running(setup):
        job = await until_reason(setup, "no_room")
        (condition,) = [each for each in job.conditions if each.type == "SparesReady"]
        assert "uses 4 of at most 5" in condition.message
    await setup.store.queue.put_project(ProjectRow("default"))
    await setup.submit("wide", dp=8)
    async with controlled(setup):
        await setup.until("j-wide", lambda row: any(each.reason == "too_large" for each in row.conditions))
        await until_spares(setup, "local-3")


def reservation(name: str, ranks: int, where: str, *, spare: bool = False) -> Allocation:
    data = {"ranks": ranks, "name": where, "numbers": [], **({"spare": True} if spare else {})}
    return Allocation(JOB, AllocationKind.RESERVATION, name, where, data)


def test_a_spare_replaces_only_the_missing_ranks() -> None:
    spares = [reservation(f"{where}{number}", 1, where, spare=True) for where in ("c", "d") for number in (1, 2, 3)]
    leaving = [Member((reservation("a", 1, "a"),), (5,)), Member((reservation("b", 3, "b"),))]
    nodes = [node(1), *(type(node(1))(id=name, name=name, address="x") for name in "cd")]
    found = promote_spares(spares, leaving, nodes)
    names = {lost: [row.name for row in each.reservations] for lost, each in found.substitutes.items()}
    assert names == {"b": ["c1", "c2", "c3"], "a": ["d1"]}
    assert found.substitutes["a"].numbers == [5] and all(row.is_for_ranks for row in found.promoted)
    assert found.released - {row.name for row in found.promoted} == {"d2", "d3"}
    assert promote_spares(spares, leaving, [node(1)]).substitutes == {}, "the nodes of the spares have left the cluster"
    assert promote_spares(spares, [Member((reservation("b", 4, "b"),))], nodes).substitutes == {}, (
        "no spare has the capacity"
    )


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 8)), max_size=6), st.floats(0, 200))
def test_device_seconds_of_spares_are_between_zero_and_the_allocation(
    timeline: list[tuple[float, int]], until_s: float
) -> None:
    total = spare_device_seconds(timeline, until_s)
    most = max((devices for _, devices in timeline), default=0)
    latest_s = max([until_s, *(at_s for at_s, _ in timeline)])
    assert 0.0 <= total <= most * latest_s * (1 + 1e-12)  # the sum of parts rounds differently
    assert spare_device_seconds([(10.0, 2), (20.0, 0), (30.0, 4)], 35.0) == 40.0


def payload_of_two() -> JobConfig:
    return JobConfig.from_json(
        {"job_id": "j1", "spec": parse_spec(SPEC).model_dump(mode="json"), "nodes": [place("node-0"), place("node-1")],
         "layout": {"dp_replicate": 1, "dp_shard": 2, "cp": 1, "tp": 1, "pp": 1}, "storage_uri": "file:///s",
         "datasets_uri": "file:///d", "preflight": True}
    )  # fmt: skip


async def test_the_supervisor_prepares_agent_and_data_once() -> None:
    nodes, payload = FakeNodes({}), payload_of_two()
    spares, gang = SpareNodes(lambda *_: None), Gang(nodes, payload.agent_configs())
    spares.set_desired(assigned([place("node-2")]), payload, gang)
    await eventually(lambda: spares.state == {"node-2": "ready"})
    done = [method for where, method in nodes.calls if where == "node-2"]
    assert done[0] == "start" and {"start_zygote", "check_storage", "fetch_data", "run_preflight"} <= set(done)
    assert all(where == "node-2" for where, _ in nodes.calls)
    before = list(nodes.calls)
    spares.set_desired(assigned([place("node-2")]), payload, gang)
    await asyncio.sleep(0)
    assert nodes.calls == before, "the second call changes nothing"
    spares.set_desired([], payload, gang)
    assert spares.state == {} and nodes.calls == before, "the supervisor does not stop a promoted spare"
    await spares.stop()


async def test_the_supervisor_polls_spares_and_reports_a_dead_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find a dead agent without Ray, which reports it half a minute later."""
    monkeypatch.setattr("regroup.service.supervisor.spare_nodes._POLL_S", 0.01)
    nodes, payload = FakeNodes({}), payload_of_two()
    spares, gang = SpareNodes(lambda *_: None), Gang(nodes, payload.agent_configs())
    spares.set_desired(assigned([place("node-2")]), payload, gang)
    await eventually(lambda: spares.state == {"node-2": "ready"})
    await eventually(lambda: ("node-2", "status") in nodes.calls)
    assert spares.state == {"node-2": "ready"}
    nodes.dead.add("node-2")
    await eventually(lambda: spares.state == {"node-2": "agent on node-2 is lost"})
    await spares.stop()
