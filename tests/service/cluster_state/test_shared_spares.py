"""Nodes that a project has kept ready: nobody starts there, and a job that loses one of its own goes there."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from regroup.service.cluster_state.shared_spares import kept_nodes, without_kept
from regroup.service.domain.states import JobState
from regroup.service.observability.prometheus import Metrics
from regroup.service.operations.nodes import Nodes
from regroup.service.policy.detection.node_quarantine import QuarantinePolicy
from regroup.service.ports.cluster import Node
from regroup.service.settings import Settings
from regroup.service.store.records import ProjectRow
from regroup.service.store.store import Store
from tests.service.controller.test_controller import House, controlled, eventually
from tests.support.doubles.fake_cluster import FakeCluster, FakeSupervisor
from tests.support.inputs.sync_records import status


def node(number: int) -> Node:
    return Node(id=f"{number}" * 40, name=f"local-{number}", address="10.0.0.1", cpus=2, free_cpus=2)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncGenerator[House]:
    settings = Settings(state_dir=tmp_path, sync_wait_s=0.5, lease_s=1.5)
    store = await Store.open(settings.database_url)
    await store.queue.put_project(ProjectRow("vision", spares=1))
    yield House(store, FakeCluster([node(1), node(2)]), settings)
    await store.close()


async def trains(house: House) -> FakeSupervisor:
    supervisor = await house.supervisor(await house.submit(dp=2, project="vision"))
    await supervisor.state("RUNNING", "first_step")
    await house.until_state("j-gpt", JobState.RUNNING)
    return supervisor


async def test_nothing_starts_there_and_whoever_waits_is_told(house: House) -> None:
    async with controlled(house):
        await trains(house)
        await house.submit("other", dp=2)
        waits = await house.until("j-other", lambda job: bool(job.conditions))
        (placeable,) = [each for each in waits.conditions if each.type == "Placeable"]
        assert "reserved as a spare for jobs of project 'vision'" in placeable.message
        await house.store.queue.put_project(ProjectRow("vision"))
        await house.until_state("j-other", JobState.STARTING)


async def test_a_job_that_loses_its_node_goes_there_and_one_of_another_project_does_not(house: House) -> None:
    async with controlled(house):
        supervisor = await trains(house)
        (kept,) = await kept_nodes(house.store, await house.cluster.nodes())
        nodes = await house.cluster.nodes()
        assert {each.id: bool(each.closed_reason) for each in await without_kept(house.store, nodes)}[kept]
        assert not any(each.closed_reason for each in await without_kept(house.store, nodes, "vision"))
        assert any(each.closed_reason for each in await without_kept(house.store, nodes, "speech"))
        (lost,) = [each["node_id"] for each in supervisor.payload["nodes"]]
        house.cluster.remove_node(lost)
        supervisor.status = status(nodes=[lost], former=[], lost=[lost])
        await supervisor.state("RECOVERING", "agent_lost")
        await eventually(lambda: [each["node_id"] for each in supervisor.intents.get("nodes", ())] == [kept])
        assert await kept_nodes(house.store, await house.cluster.nodes()) == {}, "it is in use"


async def test_people_see_which_they_are_and_machines_how_many(house: House) -> None:
    rule = QuarantinePolicy(3600.0, 600.0)
    async with controlled(house):
        await trains(house)
        (kept,) = await kept_nodes(house.store, await house.cluster.nodes())
        states = await Nodes(house.store, house.cluster, rule, lambda: 0.0).list_nodes()
        assert {state.node.id: state.spare_for for state in states if state.node} == {
            kept: "vision", ({node(1).id, node(2).id} - {kept}).pop(): ""
        }  # fmt: skip
        text = (await Metrics(house.store, rule, cluster=house.cluster).render()).decode()
        assert 'regroup_project_spares{project="vision",what="desired"} 1.0' in text
        assert 'regroup_project_spares{project="vision",what="ready"} 1.0' in text
    await house.store.queue.put_project(ProjectRow("vision", limit=2, spares=1))
    assert await kept_nodes(house.store, await house.cluster.nodes()) == {}, "its limit leaves none"
