"""Shared spares of a project: no job starts on them, and they replace lost nodes of the project's jobs."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from regroup.service.cluster_state.shared_spares import close_shared_spares, shared_spare_nodes
from regroup.service.domain.states import JobState
from regroup.service.observability.prometheus import Metrics
from regroup.service.operations.nodes import Nodes
from regroup.service.policy.detection.node_quarantine import QuarantinePolicy
from regroup.service.ports.cluster import Node
from regroup.service.settings import Settings
from regroup.service.store.rows.records import ProjectRow
from tests.service.controller.test_controller import ControlSetup, controlled, eventually
from tests.support.doubles.fake_cluster import FakeCluster, FakeSupervisor
from tests.support.inputs.sync_records import status
from tests.support.servers.stores import open_store


def node(number: int) -> Node:
    return Node(id=f"{number}" * 40, name=f"local-{number}", address="10.0.0.1", cpus=2, free_cpus=2)


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncGenerator[ControlSetup]:
    settings = Settings(state_dir=tmp_path, sync_wait_s=0.5, lease_s=1.5)
    store = await open_store(settings.database_url)
    await store.queue.put_project(ProjectRow("vision", spares=1))
    yield ControlSetup(store, FakeCluster([node(1), node(2)]), settings)
    await store.close()


async def start_training(setup: ControlSetup) -> FakeSupervisor:
    supervisor = await setup.supervisor(await setup.submit(dp=2, project="vision"))
    await supervisor.state("RUNNING", "first_step")
    await setup.until_state("j-gpt", JobState.RUNNING)
    return supervisor


async def test_no_job_starts_on_a_spare_and_a_queued_job_shows_the_reason(setup: ControlSetup) -> None:
    async with controlled(setup):
        await start_training(setup)
        await setup.submit("other", dp=2)
        waits = await setup.until("j-other", lambda job: bool(job.conditions))
        (placeable,) = [each for each in waits.conditions if each.type == "Placeable"]
        assert "reserved as a spare for jobs of another project" in placeable.message
        await setup.store.queue.put_project(ProjectRow("vision"))
        await setup.until_state("j-other", JobState.STARTING)


async def test_a_spare_replaces_a_lost_node_only_for_jobs_of_its_project(setup: ControlSetup) -> None:
    async with controlled(setup):
        supervisor = await start_training(setup)
        (spare,) = await shared_spare_nodes(setup.store, await setup.cluster.nodes())
        nodes = await setup.cluster.nodes()
        assert {each.id: bool(each.closed_reason) for each in await close_shared_spares(setup.store, nodes)}[spare]
        assert not any(each.closed_reason for each in await close_shared_spares(setup.store, nodes, "vision"))
        assert any(each.closed_reason for each in await close_shared_spares(setup.store, nodes, "speech"))
        (lost,) = [each["node_id"] for each in supervisor.payload["nodes"]]
        setup.cluster.remove_node(lost)
        supervisor.status = status(nodes=[lost], former=[], lost=[lost])
        await supervisor.state("RECOVERING", "agent_lost")
        await eventually(lambda: [each["node_id"] for each in supervisor.intents.get("nodes", ())] == [spare])
        assert await shared_spare_nodes(setup.store, await setup.cluster.nodes()) == {}, "the spare is in use"


async def test_the_node_list_names_spares_and_metrics_count_them(setup: ControlSetup) -> None:
    rule = QuarantinePolicy(3600.0, 600.0)
    async with controlled(setup):
        await start_training(setup)
        (spare,) = await shared_spare_nodes(setup.store, await setup.cluster.nodes())
        states = await Nodes(setup.store, setup.cluster, rule, lambda: 0.0).list_nodes()
        assert {state.node.id: state.spare_for for state in states if state.node} == {
            spare: "vision", ({node(1).id, node(2).id} - {spare}).pop(): ""
        }  # fmt: skip
        text = (await Metrics(setup.store, rule, cluster=setup.cluster).render()).decode()
        assert 'regroup_project_spares{project="vision",what="desired"} 1.0' in text
        assert 'regroup_project_spares{project="vision",what="ready"} 1.0' in text
    await setup.store.queue.put_project(ProjectRow("vision", limit=2, spares=1))
    assert await shared_spare_nodes(setup.store, await setup.cluster.nodes()) == {}, "the limit leaves no spare"
