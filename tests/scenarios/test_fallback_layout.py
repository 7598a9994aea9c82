"""A job whose lost node has no equal substitute. It runs with another split or layout, and returns when it can."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from regroup.service.domain.states import JobState
from regroup.service.ports.cluster import Node
from regroup.service.settings import Settings
from tests.service.controller.test_controller import ControlSetup, controlled, eventually
from tests.support.doubles.fake_cluster import FakeCluster, FakeSupervisor
from tests.support.inputs.sync_records import status
from tests.support.servers.stores import open_store

SPLITTABLE = {"kind": "builtin", "model": {"vocab_size": 264}, "data": {"train": ["/data/*.txt"]}}


def node(number: int, cpus: int) -> Node:
    return Node(id=f"{number}" * 40, name=f"local-{number}", address="10.0.0.1", cpus=cpus, free_cpus=cpus)


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncGenerator[ControlSetup]:
    settings = Settings(state_dir=tmp_path, sync_wait_s=0.5, lease_s=1.5)
    store = await open_store(settings.database_url)
    yield ControlSetup(store, FakeCluster([node(1, 2), node(2, 1), node(3, 1)]), settings)
    await store.close()


async def start_training(setup: ControlSetup, **layout: object) -> FakeSupervisor:
    supervisor = await setup.supervisor(await setup.submit(layout=layout, workload=SPLITTABLE))
    await supervisor.state("RUNNING", "first_step")
    await setup.until_state("j-gpt", JobState.RUNNING)
    return supervisor


async def lose_node(setup: ControlSetup, supervisor: FakeSupervisor, lost: Node) -> None:
    setup.cluster.remove_node(lost.id)
    supervisor.status = status(nodes=[lost.id], former=[], lost=[lost.id])
    await supervisor.state("RECOVERING", "agent_lost")


def ranks_by_node(supervisor: FakeSupervisor) -> dict[str, int]:
    return {each["name"]: each["ranks"] for each in supervisor.intents.get("nodes", ())}


async def test_ranks_of_a_lost_node_are_placed_on_several_nodes(setup: ControlSetup) -> None:
    async with controlled(setup):
        supervisor = await start_training(setup, dp=2)
        assert [each["name"] for each in supervisor.payload["nodes"]] == ["local-1"]
        await lose_node(setup, supervisor, node(1, 2))
        await eventually(lambda: ranks_by_node(supervisor) == {"local-2": 1, "local-3": 1})
        assert supervisor.intents["layout"]["dp_shard"] == 2


async def test_a_job_changes_its_layout_if_no_node_fits_and_returns_to_it_later(
    setup: ControlSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regroup.service.policy.elasticity.autosize.MIN_RESIZE_INTERVAL_S", 0.0)
    monkeypatch.setattr("regroup.service.policy.elasticity.autosize.CAPACITY_SETTLED_S", 0.0)
    monkeypatch.setattr("regroup.service.policy.sync_pace._LEAST_SEARCH_S", 0.0)
    async with controlled(setup):
        supervisor = await start_training(setup, tp=2)
        await lose_node(setup, supervisor, node(1, 2))
        await eventually(lambda: ranks_by_node(supervisor) == {"local-2": 1, "local-3": 1})
        after = supervisor.intents["layout"]
        assert after["tp"] == 1 and "nodes were lost" in supervisor.intents["change"]["why"]
        two = [node(2, 1).id, node(3, 1).id]
        supervisor.status = status(nodes=two, layout=after, ranks_by_node=dict.fromkeys(two, 1))
        await supervisor.state("RUNNING", "first_step")
        await setup.until("j-gpt", lambda job: job.state is JobState.RUNNING)
        setup.cluster.add_node(node(4, 2))
        await eventually(lambda: ranks_by_node(supervisor) == {"local-4": 2})
        assert supervisor.intents["layout"]["tp"] == 2
        assert "again for the layout of the spec" in supervisor.intents["change"]["why"]
