"""A live job that is to be of another size, from the wish to what is given back, as the controller does it."""

import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regroup.service.cluster_state.allocations import JobAllocations
from regroup.service.cluster_state.queue import Specs, running
from regroup.service.domain.states import JobState
from regroup.service.operations.resize import Size, layout_for, resize
from regroup.service.ports.cluster import Node
from regroup.service.settings import Settings
from regroup.service.store.records import DrainRow, JobRow
from regroup.service.store.store import Store
from tests.service.controller.test_controller import House, controlled, eventually
from tests.support.doubles.fake_cluster import FakeCluster, FakeSupervisor
from tests.support.inputs.sync_records import status

ELASTIC = {"min": 1, "target": 4, "max": 8}
TRAINING = {"global_batch": 8, "micro_batch": 1, "sequence": 16, "steps": 1000}


def node(number: int, cpus: int = 2) -> Node:
    return Node(id=f"{number}" * 40, name=f"local-{number}", address="10.0.0.1", cpus=cpus, free_cpus=cpus)


class Running:
    """A job of four ranks that trains on two nodes."""

    def __init__(self, house: House, supervisor: FakeSupervisor) -> None:
        self.house, self.supervisor = house, supervisor

    async def resize(self, dp: int, **split: int) -> JobRow:
        job = await self.house.store.job("j-gpt")
        layout = layout_for(job.parsed_spec(), Size(dp, **split))
        return await resize(self.house.store, job, layout, why="on request", now=time.time(), actor="test")

    async def told(self, dp: int) -> dict[str, int]:
        """Ranks by node as the supervisor is told of them, once it is told of that size."""

        def is_told() -> bool:
            return (self.supervisor.intents.get("layout") or {}).get("dp_shard") == dp

        await eventually(is_told)
        assert self.supervisor.intents["change"]["sizes"]["after"]["dp_shard"] == dp
        return {each["name"]: each["ranks"] for each in self.supervisor.intents["nodes"]}

    def goes(self, *, former: tuple[str, ...] = ()) -> None:
        nodes = self.supervisor.intents["nodes"]
        self.supervisor.status = status(
            nodes=sorted(each["node_id"] for each in nodes),
            former=former,
            seats={each["node_id"]: each["ranks"] for each in nodes},
            layout=self.supervisor.intents["layout"],
        )

    async def held(self) -> dict[str, int]:
        """Ranks that fit in what the job holds, by node; empty while the cluster has given more or less."""
        rows = [row for row in await self.house.store.live_allocations("j-gpt") if row.kind == "reservation"]
        if {row.name for row in rows} != set(self.house.cluster.held):
            return {}
        found: dict[str, int] = {}
        for row in rows:
            found[row.data["name"]] = found.get(row.data["name"], 0) + row.data["ranks"]
        return found

    async def seen(self) -> list[tuple[int, dict[str, int]]]:
        """The job as the queue sees it: ranks, and how many of them on which node."""
        row, rows = await self.house.store.job("j-gpt"), await self.house.store.live_allocations("j-gpt")
        parts = running(row, [each for each in rows if each.kind == "reservation"], Specs(), now=time.time())
        return [(part.demand.ranks, {node_id[0]: ranks for node_id, ranks in part.node_ranks}) for part in parts]

    async def until_held(self, **expected: int) -> None:
        async def is_so() -> bool:
            return await self.held() == {name.replace("_", "-"): count for name, count in expected.items()}

        await eventually(is_so)

    async def history(self) -> list[dict[str, Any]]:
        return [event.data for event in await self.house.store.events("j-gpt") if event.type == "nodes"]

    async def until_over(self) -> JobRow:
        return await self.house.until("j-gpt", lambda job: not job.intents.get("resize"))


@pytest.fixture
async def house(tmp_path: Path) -> AsyncGenerator[House]:
    settings = Settings(state_dir=tmp_path, sync_wait_s=5, lease_s=1.5, min_run_s=0)
    store = await Store.open(settings.database_url)
    yield House(store, FakeCluster([node(1), node(2)]), settings)
    await store.close()


@pytest.fixture
async def job(house: House) -> AsyncGenerator[Running]:
    async with controlled(house):
        supervisor = await house.supervisor(await house.submit(dp=ELASTIC, training=TRAINING))
        await supervisor.state("RUNNING", "first_step")
        await house.until_state("j-gpt", JobState.RUNNING)
        yield Running(house, supervisor)


async def test_a_job_gives_up_what_it_has_above_its_least_for_one_of_a_higher_class(job: Running) -> None:
    assert await job.seen() == [(4, {"1": 2, "2": 2})]
    await job.house.submit("urgent", dp=2, priority="high")
    assert await job.told(2) == {"local-1": 2}
    assert await job.seen() == [(2, {"1": 2}), (2, {"2": 2})], "what stays, and what comes free"
    assert (await job.house.store.job("j-gpt")).intents["resize"]["why"].startswith("preempted by job 'urgent'")
    job.goes(former=("2" * 40,))
    await job.until_held(local_1=2, local_2=2)
    job.goes()
    await job.until_over()
    await job.house.until_state("j-urgent", JobState.STARTING)
    plan = next(row.data for row in await job.house.store.live_allocations("j-gpt") if row.kind == "supervisor")
    assert not plan.get("is_user_size"), "no person chose this size, so the job may grow again"


async def test_a_job_grows_onto_a_node_that_came(job: Running) -> None:
    job.house.cluster.add_node(node(3))
    await job.resize(6)
    assert await job.told(6) == {"local-1": 2, "local-2": 2, "local-3": 2}
    assert await job.held() == {"local-1": 2, "local-2": 2, "local-3": 2}
    job.goes()
    await job.until_over()
    (found,) = await job.history()
    assert found["resized"]["before"]["dp_shard"] == 4 and found["resized"]["after"]["dp_shard"] == 6
    plan = next(row.data for row in await job.house.store.live_allocations("j-gpt") if row.kind == "supervisor")
    assert "resize" not in plan and plan["layout"]["dp_shard"] == 6


async def test_ranks_are_in_the_order_of_the_topology_again(job: Running) -> None:
    racks = {"local-1": "x", "local-2": "y", "local-3": "x", "local-4": "y"}
    for number, rack in enumerate(racks.values(), 1):
        job.house.cluster.add_node(replace(node(number), labels={"regroup.io/rack": rack}))
    await job.resize(8)
    await job.told(8)
    names = [each["name"] for each in job.supervisor.intents["nodes"]]
    ring = [racks[name] for name in names]
    assert sum(one != other for one, other in zip(ring, ring[1:] + ring[:1], strict=True)) == 2, names
    assert [each["numbers"] for each in job.supervisor.intents["nodes"]] == [[]] * 4
    # Whoever takes a node's place later takes the ranks that it has now.
    rows = await job.house.store.live_allocations("j-gpt")
    assert [each.name for each in JobAllocations(rows).members] == names


async def test_ranks_that_are_split_otherwise_are_not_where_they_were_before(house: House) -> None:
    layout = {"dp": {"min": 2, "target": 2, "max": 4}, "pp": 2, "data_parallel": "ddp"}
    async with controlled(house):
        training = {**TRAINING, "sequence": 4096}
        supervisor = await house.supervisor(await house.submit(layout=layout, training=training))
        assert [each["numbers"] for each in supervisor.payload["nodes"]] == [[0, 2], [1, 3]], "stages share a node"
        await supervisor.state("RUNNING", "first_step")
        await house.until_state("j-gpt", JobState.RUNNING)
        await Running(house, supervisor).resize(4, pp=1)
        await eventually(lambda: (supervisor.intents.get("layout") or {}).get("pp") == 1)
        told = [(each["ranks"], each["numbers"]) for each in supervisor.intents["nodes"]]
        assert told == [(2, []), (2, [])], "as many ranks, but others"


@pytest.mark.slow
async def test_it_gives_one_device_of_a_node_back_and_takes_it_again(job: Running) -> None:
    """What Ray has given is given back whole: a job that may shrink holds each rank's apart."""
    await job.resize(3)
    assert await job.told(3) == {"local-1": 2, "local-2": 1}
    assert await job.held() == {"local-1": 2, "local-2": 2}, "its ranks may still run there"
    job.goes()
    await job.until_held(local_1=2, local_2=1)
    agents = [row for row in await job.house.store.live_allocations("j-gpt") if row.kind == "agent"]
    assert len(agents) == 2 and not [call for call in job.house.cluster.calls if call.startswith("kill")]
    other = await job.house.supervisor(await job.house.submit("other", dp=1))
    assert [each["name"] for each in other.payload["nodes"]] == ["local-2"], "another job has it now"
    await job.until_over()
    await job.resize(1)
    assert await job.told(1) == {"local-1": 1}
    job.goes(former=("2" * 40,))
    job.goes()
    await job.until_over()


@pytest.mark.slow
async def test_a_node_that_is_left_is_held_until_its_state_was_taken_over(job: Running) -> None:
    await job.resize(2)
    assert await job.told(2) == {"local-1": 2}
    job.goes(former=("2" * 40,))
    await job.supervisor.emit("note", kind="x")
    await job.until_held(local_1=2, local_2=2)
    job.goes()
    await job.until_held(local_1=2)
    assert "kill regroup-agent:j-gpt:22222222" in job.house.cluster.calls


async def test_what_there_is_no_room_for_waits_and_says_so(job: Running) -> None:
    await job.resize(6)
    waiting = await job.house.until("j-gpt", lambda row: any(each.type == "Resized" for each in row.conditions))
    (condition,) = [each for each in waiting.conditions if each.type == "Resized"]
    assert "from 4 to 6 ranks" in condition.message
    job.house.cluster.add_node(node(3))
    await job.told(6)
    await job.house.until("j-gpt", lambda row: not any(each.type == "Resized" for each in row.conditions))


@pytest.mark.slow
async def test_a_node_that_cannot_be_made_ready_is_given_back(job: Running) -> None:
    job.house.cluster.add_node(node(3))
    await job.resize(6)
    await job.told(6)
    job.supervisor.status = status(unready={"nodes": [node(n).id for n in (1, 2, 3)], "why": "no such interpreter"})
    await job.until_held(local_1=2, local_2=2)
    assert (await job.history())[0]["refused"]["after"]["dp_shard"] == 6


@pytest.mark.slow
async def test_one_change_for_a_resize_and_a_node_that_is_drained(job: Running) -> None:
    job.house.cluster.add_node(node(3, cpus=4))
    now = time.time()
    await job.house.store.drain(DrainRow(node(2).id, "local-2", "disks", "test", now, now + 60))
    await job.resize(5)
    assert await job.told(5) == {"local-1": 2, "local-3": 3}
    assert "drain" not in job.supervisor.intents
    assert job.supervisor.intents["change"]["leaving"] == {node(2).id: "local-2"}
    job.goes()
    await job.until_held(local_1=2, local_3=3)


@pytest.mark.slow
async def test_the_same_wish_is_one_wish_and_another_takes_its_place(job: Running) -> None:
    first = await job.resize(7)
    assert (await job.resize(7)).version == first.version
    assert (await job.resize(3)).intents["resize"]["layout"]["dp_shard"] == 3
    await job.told(3)


@pytest.mark.slow
async def test_a_control_plane_that_comes_anew_goes_on_with_it(house: House) -> None:
    async with controlled(house):
        supervisor = await house.supervisor(await house.submit(dp=ELASTIC, training=TRAINING))
        await supervisor.state("RUNNING", "first_step")
        await house.until_state("j-gpt", JobState.RUNNING)
        job = Running(house, supervisor)
        await job.resize(3)
        await job.told(3)
    supervisor.intents.clear()
    async with controlled(house):
        await job.told(3)
        job.goes()
        await job.until_held(local_1=2, local_2=1)


async def test_a_lost_node_that_nothing_replaces_makes_the_job_smaller(job: Running) -> None:
    job.house.cluster.remove_node(node(2).id)
    job.supervisor.status = status(nodes=[node(1).id, node(2).id], former=[], lost=[node(2).id])
    await job.supervisor.state("RECOVERING", "agent_lost")
    assert await job.told(2) == {"local-1": 2}
    assert "nodes were lost" in job.supervisor.intents["change"]["why"]
    job.goes()
    await job.until_held(local_1=2)


@pytest.mark.slow
async def test_it_grows_into_room_that_nobody_waits_for(job: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regroup.service.policy.elasticity.autosize.MIN_RESIZE_INTERVAL_S", 0.0)
    monkeypatch.setattr("regroup.service.policy.elasticity.autosize.CAPACITY_SETTLED_S", 0.0)
    monkeypatch.setattr("regroup.service.controller.autosize._SEARCH_EVERY_S", 0.0)
    job.house.cluster.add_node(node(3))
    split = {"dp_replicate": 1, "dp_shard": 4, "cp": 1, "tp": 1, "pp": 1}
    place = {"layout": split, "world_size": 4, "ranks": [], "restore": {"source": "none"}, "cause": "start"}
    await job.supervisor.emit("generation", number=1, start_step=0, **place)
    row = {"duration_s": 9.0, "loss": 2.0, "tokens": 64, "samples": 4, "samples_hash": 1, "stall_s": 0.0}
    for steps in (range(1, 6), range(6, 40), range(40, 42), range(42, 44)):  # it is looked at once for each
        for step in steps:
            await job.supervisor.emit("step", step=step, **row)
        await job.house.until("j-gpt", lambda row, last=steps[-1]: row.step >= last)
    assert await job.told(6) == {"local-1": 2, "local-2": 2, "local-3": 2}
    assert "capacity for 6 ranks" in job.supervisor.intents["change"]["why"]


@pytest.mark.slow
async def test_a_drained_node_for_which_there_is_no_other_makes_the_job_smaller(job: Running) -> None:
    now = time.time()
    await job.house.store.drain(DrainRow(node(2).id, "local-2", "disks", "test", now, now + 6))
    assert await job.told(2) == {"local-1": 2}
    told = job.supervisor.intents["change"]
    assert told["leaving"] == {node(2).id: "local-2"} and told["deadline_s"] is not None
    assert "nodes leave" in told["why"] and "drain" not in job.supervisor.intents
    job.goes()
    await job.until_held(local_1=2)
