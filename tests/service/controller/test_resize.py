"""The resize of a live job by the controller, from the request to the release of nodes."""

import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regroup.service.cluster_state.allocations import JobAllocations
from regroup.service.cluster_state.queue import Specs, running
from regroup.service.domain.author import Author
from regroup.service.domain.states import JobState
from regroup.service.operations.resize import Size, layout_for, resize
from regroup.service.policy.detection.node_quarantine import NodeEventKind
from regroup.service.ports.cluster import Node
from regroup.service.settings import Settings
from regroup.service.store.rows.records import DrainRow, JobRow
from tests.service.controller.test_controller import ControlSetup, controlled, eventually
from tests.support.doubles.fake_cluster import FakeCluster, FakeSupervisor
from tests.support.inputs.sync_records import status
from tests.support.servers.stores import open_store

ELASTIC = {"min": 1, "target": 4, "max": 8}
TRAINING = {"global_batch": 8, "micro_batch": 1, "sequence": 16, "steps": 1000}


def node(number: int, cpus: int = 2) -> Node:
    return Node(id=f"{number}" * 40, name=f"local-{number}", address="10.0.0.1", cpus=cpus, free_cpus=cpus)


class Running:
    """A job of four ranks that trains on two nodes."""

    def __init__(self, setup: ControlSetup, supervisor: FakeSupervisor) -> None:
        self.setup, self.supervisor = setup, supervisor

    async def resize(self, dp: int, **split: int) -> JobRow:
        job = await self.setup.store.job("j-gpt")
        layout = layout_for(job.parsed_spec(), Size(dp, **split))
        return await resize(self.setup.store, job, layout, why="on request", now=time.time(), author=Author("test"))

    async def wait_for_size(self, dp: int) -> dict[str, int]:
        """Wait until the supervisor gets this size, and return the ranks of each node."""

        def has_size() -> bool:
            return (self.supervisor.intents.get("layout") or {}).get("dp_shard") == dp

        await eventually(has_size)
        assert self.supervisor.intents["change"]["sizes"]["after"]["dp_shard"] == dp
        return {each["name"]: each["ranks"] for each in self.supervisor.intents["nodes"]}

    def adopt_nodes(self, *, former: tuple[str, ...] = ()) -> None:
        nodes = self.supervisor.intents["nodes"]
        self.supervisor.status = status(
            nodes=sorted(each["node_id"] for each in nodes),
            former=former,
            ranks_by_node={each["node_id"]: each["ranks"] for each in nodes},
            layout=self.supervisor.intents["layout"],
        )

    async def allocated(self) -> dict[str, int]:
        """Return the allocated ranks of each node; empty while rows and reservations differ."""
        rows = [row for row in await self.setup.store.live_allocations("j-gpt") if row.kind == "reservation"]
        if {row.name for row in rows} != set(self.setup.cluster.held):
            return {}
        found: dict[str, int] = {}
        for row in rows:
            found[row.data["name"]] = found.get(row.data["name"], 0) + row.data["ranks"]
        return found

    async def demand(self) -> list[tuple[int, dict[str, int]]]:
        """Return the parts of the job as the queue counts them: ranks, and ranks per node."""
        row, rows = await self.setup.store.job("j-gpt"), await self.setup.store.live_allocations("j-gpt")
        parts = running(row, [each for each in rows if each.kind == "reservation"], Specs(), now=time.time())
        return [(part.demand.ranks, {node_id[0]: ranks for node_id, ranks in part.node_ranks}) for part in parts]

    async def until_allocated(self, **expected: int) -> None:
        async def is_allocated() -> bool:
            return await self.allocated() == {name.replace("_", "-"): count for name, count in expected.items()}

        await eventually(is_allocated)

    async def history(self) -> list[dict[str, Any]]:
        return [event.data for event in await self.setup.store.events("j-gpt") if event.type == "nodes"]

    async def until_resized(self) -> JobRow:
        return await self.setup.until("j-gpt", lambda job: not job.intents.get("resize"))


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncGenerator[ControlSetup]:
    settings = Settings(state_dir=tmp_path, sync_wait_s=5, lease_s=1.5, min_run_s=0)
    store = await open_store(settings.database_url)
    yield ControlSetup(store, FakeCluster([node(1), node(2)]), settings)
    await store.close()


@pytest.fixture
async def job(setup: ControlSetup) -> AsyncGenerator[Running]:
    async with controlled(setup):
        supervisor = await setup.supervisor(await setup.submit(dp=ELASTIC, training=TRAINING))
        await supervisor.state("RUNNING", "first_step")
        await setup.until_state("j-gpt", JobState.RUNNING)
        yield Running(setup, supervisor)


async def test_a_job_shrinks_to_its_minimum_for_a_job_of_higher_priority(job: Running) -> None:
    assert await job.demand() == [(4, {"1": 2, "2": 2})]
    await job.setup.submit("urgent", dp=2, priority="high")
    assert await job.wait_for_size(2) == {"local-1": 2}
    assert await job.demand() == [(2, {"1": 2}), (2, {"2": 2})], "the ranks that remain, and those to release"
    assert (await job.setup.store.job("j-gpt")).intents["resize"]["why"].startswith("preempted by job 'urgent'")
    job.adopt_nodes(former=("2" * 40,))
    await job.until_allocated(local_1=2, local_2=2)
    job.adopt_nodes()
    await job.until_resized()
    await job.setup.until_state("j-urgent", JobState.STARTING)
    plan = next(row.data for row in await job.setup.store.live_allocations("j-gpt") if row.kind == "supervisor")
    assert not plan.get("is_user_size"), "no person chose this size, so the job may grow again"


async def test_a_job_grows_onto_a_node_that_joined(job: Running) -> None:
    job.setup.cluster.add_node(node(3))
    await job.resize(6)
    assert await job.wait_for_size(6) == {"local-1": 2, "local-2": 2, "local-3": 2}
    assert await job.allocated() == {"local-1": 2, "local-2": 2, "local-3": 2}
    job.adopt_nodes()
    await job.until_resized()
    (found,) = await job.history()
    assert found["resized"]["before"]["dp_shard"] == 4 and found["resized"]["after"]["dp_shard"] == 6
    plan = next(row.data for row in await job.setup.store.live_allocations("j-gpt") if row.kind == "supervisor")
    assert "resize" not in plan and plan["layout"]["dp_shard"] == 6


async def test_a_resize_restores_the_rank_order_of_the_topology(job: Running) -> None:
    racks = {"local-1": "x", "local-2": "y", "local-3": "x", "local-4": "y"}
    for number, rack in enumerate(racks.values(), 1):
        job.setup.cluster.add_node(replace(node(number), labels={"regroup.io/rack": rack}))
    await job.resize(8)
    await job.wait_for_size(8)
    names = [each["name"] for each in job.supervisor.intents["nodes"]]
    ring = [racks[name] for name in names]
    assert sum(one != other for one, other in zip(ring, ring[1:] + ring[:1], strict=True)) == 2, names
    assert [each["numbers"] for each in job.supervisor.intents["nodes"]] == [[]] * 4
    # A later substitute gets the ranks that its node has now.
    rows = await job.setup.store.live_allocations("j-gpt")
    assert [each.name for each in JobAllocations(rows).members] == names


async def test_a_new_split_assigns_the_ranks_of_each_node_again(setup: ControlSetup) -> None:
    layout = {"dp": {"min": 2, "target": 2, "max": 4}, "pp": 2, "data_parallel": "ddp"}
    async with controlled(setup):
        training = {**TRAINING, "sequence": 4096}
        supervisor = await setup.supervisor(await setup.submit(layout=layout, training=training))
        assert [each["numbers"] for each in supervisor.payload["nodes"]] == [[0, 2], [1, 3]], "stages share a node"
        await supervisor.state("RUNNING", "first_step")
        await setup.until_state("j-gpt", JobState.RUNNING)
        await Running(setup, supervisor).resize(4, pp=1)
        await eventually(lambda: (supervisor.intents.get("layout") or {}).get("pp") == 1)
        nodes = [(each["ranks"], each["numbers"]) for each in supervisor.intents["nodes"]]
        assert nodes == [(2, []), (2, [])], "the same number of ranks, but different ones"


async def test_a_node_with_one_rank_gets_the_rest_of_a_group(setup: ControlSetup) -> None:
    """Split tensors over two ranks of a node that has only one of them so far: less than a group is missing."""
    setup.cluster = FakeCluster([node(1, cpus=3), node(2, cpus=3)])
    fields = {
        "layout": {"dp": {"min": 2, "target": 4, "max": 6}, "data_parallel": "fsdp"},
        "training": {**TRAINING, "global_batch": 12},
        "workload": {
            "kind": "builtin", "data": {"train": ["/data/*.txt"], "tokenizer": "byte"},
            "model": {"family": "transformer", "dim": 64, "layers": 2, "heads": 4, "vocab_size": 260},
        },
    }  # fmt: skip
    async with controlled(setup):
        supervisor = await setup.supervisor(await setup.submit(**fields))
        assert sorted(each["ranks"] for each in supervisor.payload["nodes"]) == [1, 3]
        await supervisor.state("RUNNING", "first_step")
        await setup.until_state("j-gpt", JobState.RUNNING)
        running = Running(setup, supervisor)
        await running.resize(2, tp=2)
        assert await running.wait_for_size(2) == {"local-1": 2, "local-2": 2}
        assert await running.allocated() == {"local-1": 3, "local-2": 2}, "the third rank still runs"


@pytest.mark.slow
async def test_one_device_of_a_node_is_released_and_allocated_again(job: Running) -> None:
    """Reserve each rank of an elastic job separately, because Ray releases only whole reservations."""
    await job.resize(3)
    assert await job.wait_for_size(3) == {"local-1": 2, "local-2": 1}
    assert await job.allocated() == {"local-1": 2, "local-2": 2}, "ranks may still run on the second node"
    job.adopt_nodes()
    await job.until_allocated(local_1=2, local_2=1)
    agents = [row for row in await job.setup.store.live_allocations("j-gpt") if row.kind == "agent"]
    assert len(agents) == 2 and not [call for call in job.setup.cluster.calls if call.startswith("kill")]
    other = await job.setup.supervisor(await job.setup.submit("other", dp=1))
    assert [each["name"] for each in other.payload["nodes"]] == ["local-2"], "another job uses the released device"
    await job.until_resized()
    await job.resize(1)
    assert await job.wait_for_size(1) == {"local-1": 1}
    job.adopt_nodes(former=("2" * 40,))
    job.adopt_nodes()
    await job.until_resized()


@pytest.mark.slow
async def test_a_former_node_stays_allocated_until_its_state_is_transferred(job: Running) -> None:
    await job.resize(2)
    assert await job.wait_for_size(2) == {"local-1": 2}
    job.adopt_nodes(former=("2" * 40,))
    await job.supervisor.emit("note", kind="x")
    await job.until_allocated(local_1=2, local_2=2)
    job.adopt_nodes()
    await job.until_allocated(local_1=2)
    assert "kill regroup-agent:j-gpt:22222222" in job.setup.cluster.calls


async def test_a_resize_without_capacity_waits_and_has_a_condition(job: Running) -> None:
    await job.resize(6)
    waiting = await job.setup.until("j-gpt", lambda row: any(each.type == "Resized" for each in row.conditions))
    (condition,) = [each for each in waiting.conditions if each.type == "Resized"]
    assert "from 4 to 6 ranks" in condition.message
    job.setup.cluster.add_node(node(3))
    await job.wait_for_size(6)
    await job.setup.until("j-gpt", lambda row: not any(each.type == "Resized" for each in row.conditions))


@pytest.mark.slow
async def test_a_node_that_cannot_be_prepared_is_released(job: Running) -> None:
    job.setup.cluster.add_node(node(3))
    await job.resize(6)
    await job.wait_for_size(6)
    job.supervisor.status = status(unready={"nodes": [node(n).id for n in (1, 2, 3)], "why": "no such interpreter"})
    await job.until_allocated(local_1=2, local_2=2)
    assert (await job.history())[0]["refused"]["after"]["dp_shard"] == 6


@pytest.mark.slow
async def test_a_resize_and_a_drain_become_one_change(job: Running) -> None:
    job.setup.cluster.add_node(node(3, cpus=4))
    now = time.time()
    await job.setup.store.nodes.request_drain(DrainRow(node(2).id, "local-2", "disks", "test", now, now + 60))
    await job.resize(5)
    assert await job.wait_for_size(5) == {"local-1": 2, "local-3": 3}
    assert "drain" not in job.supervisor.intents
    assert job.supervisor.intents["change"]["leaving"] == {node(2).id: "local-2"}
    job.adopt_nodes()
    await job.until_allocated(local_1=2, local_3=3)


@pytest.mark.slow
async def test_a_repeated_request_changes_nothing_and_a_new_one_replaces_it(job: Running) -> None:
    first = await job.resize(7)
    assert (await job.resize(7)).version == first.version
    assert (await job.resize(3)).intents["resize"]["layout"]["dp_shard"] == 3
    await job.wait_for_size(3)


@pytest.mark.slow
async def test_a_restarted_control_plane_continues_the_resize(setup: ControlSetup) -> None:
    async with controlled(setup):
        supervisor = await setup.supervisor(await setup.submit(dp=ELASTIC, training=TRAINING))
        await supervisor.state("RUNNING", "first_step")
        await setup.until_state("j-gpt", JobState.RUNNING)
        job = Running(setup, supervisor)
        await job.resize(3)
        await job.wait_for_size(3)
    supervisor.intents.clear()
    async with controlled(setup):
        await job.wait_for_size(3)
        job.adopt_nodes()
        await job.until_allocated(local_1=2, local_2=1)


async def test_a_job_shrinks_if_a_lost_node_has_no_substitute(job: Running) -> None:
    job.setup.cluster.remove_node(node(2).id)
    job.supervisor.status = status(nodes=[node(1).id, node(2).id], former=[], lost=[node(2).id])
    await job.supervisor.state("RECOVERING", "agent_lost")
    assert await job.wait_for_size(2) == {"local-1": 2}
    assert "nodes were lost" in job.supervisor.intents["change"]["why"]
    job.adopt_nodes()
    await job.until_allocated(local_1=2)


async def test_a_job_that_shrinks_fences_the_unresponsive_node_that_it_abandons(
    job: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regroup.service.controller.node_replacement._AGENT_RESTART_S", 0.0)
    job.supervisor.status = status(nodes=[node(1).id, node(2).id], former=[], lost=[node(2).id])
    await job.supervisor.state("RECOVERING", "agent_lost")
    assert await job.wait_for_size(2) == {"local-1": 2}
    (fault,) = await job.setup.store.nodes.events()
    assert (fault.node, fault.kind, fault.job_id) == ("local-2", NodeEventKind.SILENT, "j-gpt")


@pytest.mark.slow
async def test_a_job_grows_into_capacity_that_no_job_waits_for(job: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regroup.service.policy.elasticity.autosize.MIN_RESIZE_INTERVAL_S", 0.0)
    monkeypatch.setattr("regroup.service.policy.elasticity.autosize.CAPACITY_SETTLED_S", 0.0)
    monkeypatch.setattr("regroup.service.policy.sync_pace._LEAST_SEARCH_S", 0.0)
    job.setup.cluster.add_node(node(3))
    split = {"dp_replicate": 1, "dp_shard": 4, "cp": 1, "tp": 1, "pp": 1}
    place = {"layout": split, "world_size": 4, "ranks": [], "restore": {"source": "none"}, "cause": "start"}
    await job.supervisor.emit("generation", number=1, start_step=0, **place)
    row = {"duration_s": 9.0, "loss": 2.0, "tokens": 64, "samples": 4, "samples_hash": 1, "stall_s": 0.0}
    for steps in (range(1, 6), range(6, 40), range(40, 42), range(42, 44)):  # One pass for each range.
        for step in steps:
            await job.supervisor.emit("step", step=step, **row)
        await job.setup.until("j-gpt", lambda row, last=steps[-1]: row.step >= last)
    assert await job.wait_for_size(6) == {"local-1": 2, "local-2": 2, "local-3": 2}
    assert "capacity for 6 ranks" in job.supervisor.intents["change"]["why"]


@pytest.mark.slow
async def test_a_job_shrinks_if_a_drained_node_has_no_substitute(job: Running) -> None:
    now = time.time()
    await job.setup.store.nodes.request_drain(DrainRow(node(2).id, "local-2", "disks", "test", now, now + 6))
    assert await job.wait_for_size(2) == {"local-1": 2}
    change = job.supervisor.intents["change"]
    assert change["leaving"] == {node(2).id: "local-2"} and change["deadline_s"] is not None
    assert "nodes leave" in change["why"] and "drain" not in job.supervisor.intents
    job.adopt_nodes()
    await job.until_allocated(local_1=2)
