"""Nodes that a job holds ready, from the wish to their turn, as controller and supervisor do it."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.cluster_state.allocations import JobAllocations, Member
from regroup.service.controller.substitution import promote_spares, substitute_nodes
from regroup.service.domain.states import JobState
from regroup.service.observability.prometheus import Metrics
from regroup.service.operations.projects import Projects
from regroup.service.policy.accounting import spare_device_seconds
from regroup.service.policy.detection.node_quarantine import QuarantinePolicy
from regroup.service.settings import Settings
from regroup.service.spec.job import parse_spec
from regroup.service.store.records import Allocation, AllocationKind, DrainRow, JobRow, ProjectRow
from regroup.service.store.store import Store
from regroup.service.supervisor.gang import Gang
from regroup.service.supervisor.job_config import JobConfig
from regroup.service.supervisor.spare_nodes import SpareNodes
from tests.service.controller.test_controller import House, controlled, eventually
from tests.service.controller.test_resize import node
from tests.support.doubles.fake_cluster import FakeCluster, FakeSupervisor
from tests.support.doubles.leader_context import leader_context
from tests.support.doubles.supervised_job import SPEC, FakeNodes, place
from tests.support.inputs.sync_records import assigned, status

JOB = "j-gpt"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncGenerator[House]:
    store = await Store.open(Settings(state_dir=tmp_path).database_url)
    cluster = FakeCluster([node(1), node(2)])
    yield House(store, cluster, Settings(state_dir=tmp_path, sync_wait_s=0.2, min_run_s=0))
    await store.close()


@asynccontextmanager
async def running(house: House) -> AsyncGenerator[FakeSupervisor]:
    """A job of four ranks that wants one spare."""
    async with controlled(house):
        await house.submit(dp=4, recovery={"spares": 1})
        supervisor = await house.supervisor(JOB)
        await supervisor.state("RUNNING", "first_step")
        await house.until_state(JOB, JobState.RUNNING)
        house.cluster.add_node(node(3))
        yield supervisor


async def rows(house: House) -> list[Allocation]:
    return [row for row in await house.store.live_allocations(JOB) if row.kind == "reservation"]


async def until_spares(house: House, *names: str) -> None:
    async def is_so() -> bool:
        return sorted({row.data["name"] for row in await rows(house) if row.is_spare}) == list(names)

    await eventually(is_so)


async def until_said(house: House, reason: str) -> JobRow:
    def is_said(job: JobRow) -> bool:
        return any((each.type, each.reason) == ("SparesReady", reason) for each in job.conditions)

    return await house.until(JOB, is_said)


async def test_one_is_held_counted_made_ready_and_takes_over(house: House) -> None:
    async with running(house) as supervisor:
        (told,) = await supervisor.wait_for_intent("spares")
        assert (told["name"], told["ranks"]) == ("local-3", 2)
        await until_said(house, "preparing")
        (project,) = await Projects(house.store).list_projects()
        assert (project.allocated, project.running) == (6, 1)
        supervisor.status = status(spares={node(3).id: "ready"})
        job = await until_said(house, "ready")
        assert "ready: local-3" in [each.message for each in job.conditions]
        text = (await Metrics(house.store, QuarantinePolicy(3600.0, 600.0)).render()).decode()
        assert 'regroup_device_seconds_total{class="spare",device="cpu"}' in text

        house.cluster.calls.clear()
        house.cluster.remove_node(node(2).id)
        supervisor.status = status(lost=[node(2).id], spares={node(3).id: "ready"})
        await supervisor.state("RECOVERING", "agent_lost")
        await supervisor.wait_for_intent("nodes")
        assert {each["name"]: each["ranks"] for each in supervisor.intents["nodes"]} == {"local-1": 2, "local-3": 2}
        assert [row.data["name"] for row in await rows(house) if row.is_seat] == ["local-1", "local-3", "local-3"]
        supervisor.status = status()
        await until_spares(house)
        done = [call for call in house.cluster.calls if "33333333" in call]
        assert done == [], "what it held ready it keeps, and its agent lives on"
        await until_said(house, "no_room")
        told_of = [event.data["ranks"] for event in await house.store.events(JOB) if event.type == "spares"]
        assert told_of == [{"local-3": 2}, {}]


async def test_one_that_leaves_or_is_unfit_is_given_back(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regroup.service.controller.spares._SEARCH_EVERY_S", 0.0)
    async with running(house) as supervisor:
        await until_spares(house, "local-3")
        now = time.time()
        await house.store.drain(DrainRow(node(3).id, "local-3", "disks", "test", now, now + 60))
        await until_spares(house)
        await eventually(lambda: any("release" in call and "33333333" in call for call in house.cluster.calls))
        await house.store.undrain([node(3).id])
        await until_spares(house, "local-3")
        supervisor.status = status(spares={node(3).id: "no such interpreter"})
        await until_spares(house)
        assert "no room" not in (await until_said(house, "no_room")).message


async def test_it_takes_over_from_a_node_that_is_drained(house: House) -> None:
    async with running(house) as supervisor:
        await until_spares(house, "local-3")
        now = time.time()
        await house.store.drain(DrainRow(node(2).id, "local-2", "disks", "test", now, now + 60))
        await supervisor.wait_for_intent("change")
        nodes = supervisor.intents["nodes"]
        assert {each["name"]: each["ranks"] for each in nodes} == {"local-1": 2, "local-3": 2}
        supervisor.status = status(nodes=[each["node_id"] for each in nodes], former=[])

        async def has_left() -> bool:
            return {row.data["name"] for row in await rows(house)} == {"local-1", "local-3"}

        await eventually(has_left)
        assert not any(row.is_spare for row in await rows(house))
        assert not any("release" in call and "33333333" in call for call in house.cluster.calls)


async def test_a_spare_whose_turn_fails_is_given_back_with_its_agent(house: House) -> None:
    async with running(house):
        await until_spares(house, "local-3")
        lease = await house.store.acquire_lease("another", 0.1)
        assert lease is not None
        house.cluster.refuse.add(node(3).id)
        house.cluster.held = {name: held for name, held in house.cluster.held.items() if held.node_id != node(3).id}
        leaving = [
            each for each in JobAllocations(await house.store.live_allocations(JOB)).members if each.name == "local-2"
        ]
        job = await house.store.job(JOB)
        found = await substitute_nodes(
            leader_context(house.store, lease, house.cluster), job, leaving, await house.cluster.nodes(), time.time()
        )
        assert isinstance(found, str) and "does not hold" in found
        left = [(row.kind, row.node_id[:1]) for row in await house.store.live_allocations(JOB)]
        assert ("agent", "3") not in left and ("reservation", "3") not in left and ("reservation", "2") in left


async def test_who_waits_goes_first_and_a_quota_holds(house: House) -> None:
    await house.store.queue.put_project(ProjectRow("default", limit=5))
    async with running(house):
        job = await until_said(house, "no_room")
        (said,) = [each for each in job.conditions if each.type == "SparesReady"]
        assert "uses 4 of at most 5" in said.message
    await house.store.queue.put_project(ProjectRow("default"))
    await house.submit("wide", dp=8)
    async with controlled(house):
        await house.until("j-wide", lambda row: any(each.reason == "too_large" for each in row.conditions))
        await until_spares(house, "local-3")


def reservation(name: str, ranks: int, where: str, *, spare: bool = False) -> Allocation:
    data = {"ranks": ranks, "name": where, "numbers": [], **({"spare": True} if spare else {})}
    return Allocation(JOB, AllocationKind.RESERVATION, name, where, data)


def test_a_spare_gives_as_much_as_is_missing() -> None:
    spares = [reservation(f"{where}{number}", 1, where, spare=True) for where in ("c", "d") for number in (1, 2, 3)]
    leaving = [Member((reservation("a", 1, "a"),), (5,)), Member((reservation("b", 3, "b"),))]
    nodes = [node(1), *(type(node(1))(id=name, name=name, address="x") for name in "cd")]
    found = promote_spares(spares, leaving, nodes)
    assert {left: [row.name for row in heir.reservations] for left, heir in found.substitutes.items()} == {
        "b": ["c1", "c2", "c3"], "a": ["d1"],
    }  # fmt: skip
    assert found.substitutes["a"].numbers == [5] and all(row.is_seat for row in found.promoted)
    assert found.released - {row.name for row in found.promoted} == {"d2", "d3"}
    assert promote_spares(spares, leaving, [node(1)]).substitutes == {}, "their nodes are gone"
    assert promote_spares(spares, [Member((reservation("b", 4, "b"),))], nodes).substitutes == {}, "none has the room"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 8)), max_size=6), st.floats(0, 200))
def test_device_seconds_of_spares_are_never_negative_nor_more_than_were_held(
    timeline: list[tuple[float, int]], until_s: float
) -> None:
    total = spare_device_seconds(timeline, until_s)
    most = max((devices for _, devices in timeline), default=0)
    latest_s = max([until_s, *(at_s for at_s, _ in timeline)])
    assert 0.0 <= total <= most * latest_s
    assert spare_device_seconds([(10.0, 2), (20.0, 0), (30.0, 4)], 35.0) == 40.0


def payload_of_two() -> JobConfig:
    return JobConfig.from_json(
        {"job_id": "j1", "spec": parse_spec(SPEC).model_dump(mode="json"), "nodes": [place("node-0"), place("node-1")],
         "layout": {"dp_replicate": 1, "dp_shard": 2, "cp": 1, "tp": 1, "pp": 1}, "storage_uri": "file:///s",
         "datasets_uri": "file:///d", "preflight": True}
    )  # fmt: skip


async def test_the_supervisor_makes_agent_and_data_ready_and_says_what_it_cannot() -> None:
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
    assert nodes.calls == before, "once is enough"
    spares.set_desired([], payload, gang)
    assert spares.state == {} and nodes.calls == before, "one that takes ranks over is left as it is"
    await spares.stop()


async def test_one_that_dies_before_it_is_needed_is_found_by_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray says so half a minute later: until then it would be no spare, and its node the next to be taken."""
    monkeypatch.setattr("regroup.service.supervisor.spare_nodes._POLL_S", 0.01)
    nodes, payload = FakeNodes({}), payload_of_two()
    spares, gang = SpareNodes(lambda *_: None), Gang(nodes, payload.agent_configs())
    spares.set_desired(assigned([place("node-2")]), payload, gang)
    await eventually(lambda: spares.state == {"node-2": "ready"})
    await eventually(lambda: ("node-2", "status") in nodes.calls)
    assert spares.state == {"node-2": "ready"}
    nodes.dead.add("node-2")
    await eventually(lambda: spares.state == {"node-2": "agent on node-2 is gone"})
    await spares.stop()
