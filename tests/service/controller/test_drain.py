"""The drain of nodes of live jobs, from the notice to the released reservation."""

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regroup.service.cluster_state.allocations import JobAllocations
from regroup.service.cluster_state.drain_notices import DrainNotices
from regroup.service.controller.drain import DrainReconciler
from regroup.service.domain.states import JobState
from regroup.service.ports.cluster import Node
from regroup.service.ports.sync import UnreadyNodes
from regroup.service.settings import Settings
from regroup.service.store.records import DrainRow, Lease
from regroup.service.store.store import Store
from tests.service.controller.test_controller import TWO_NODES, House, controlled, eventually
from tests.support.doubles.fake_cluster import FakeCluster, FakeSupervisor
from tests.support.doubles.leader_context import leader_context
from tests.support.inputs.sync_records import status


def node(number: int) -> Node:
    return Node(id=f"{number}" * 40, name=f"local-{number}", address="10.0.0.1", cpus=2, free_cpus=2)


async def drain(house: House, number: int, within_s: float = 60.0) -> None:
    now = time.time()
    row = DrainRow(node(number).id, f"local-{number}", "disks", "test", now, now + within_s)
    await house.store.drain(row)


async def names(house: House, job_id: str) -> list[str]:
    rows = await house.store.live_allocations(job_id)
    return sorted(row.data["name"] for row in rows if row.kind == "reservation")


async def history(house: House, job_id: str) -> list[dict[str, Any]]:
    return [event.data for event in await house.store.events(job_id) if event.type == "nodes"]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncGenerator[House]:
    settings = Settings(state_dir=tmp_path, sync_wait_s=5, lease_s=1.5)
    store = await Store.open(settings.database_url)
    yield House(store, FakeCluster(TWO_NODES), settings)
    await store.close()


@pytest.fixture
async def running(house: House) -> AsyncGenerator[tuple[House, FakeSupervisor]]:
    async with controlled(house):
        yield house, await runs(house)


async def runs(house: House) -> FakeSupervisor:
    """A job of four ranks that trains on two nodes."""
    supervisor = await house.supervisor(await house.submit())
    await supervisor.state("RUNNING", "first_step")
    await house.until_state("j-gpt", JobState.RUNNING)
    supervisor.status = status(nodes=[node(1).id, node(2).id], former=[])
    return supervisor


def goes(supervisor: FakeSupervisor, *numbers: int, former: tuple[int, ...] = ()) -> None:
    nodes, left = [node(number).id for number in numbers], [node(number).id for number in former]
    supervisor.status = status(nodes=nodes, former=left)


async def test_what_is_left_is_given_back_when_the_job_is_elsewhere_and_not_before(
    running: tuple[House, FakeSupervisor],
) -> None:
    house, supervisor = running
    house.cluster.add_node(node(3))
    await drain(house, 1)
    told = await asyncio.wait_for(supervisor.wait_for_intent("change"), 10)
    assert told["leaving"] == {node(1).id: "local-1"} and not told["is_requeue"] and "disks" in told["why"]
    nodes = await supervisor.wait_for_intent("nodes")
    assert [each["name"] for each in nodes] == ["local-3", "local-2"], "the heir has the ranks of the one that leaves"
    assert await names(house, "j-gpt") == ["local-1", "local-2", "local-3"]
    goes(supervisor, 2, 3, former=(1,))
    await asyncio.sleep(1.2)  # it has moved, but still needs what lies there: two looks do not change that
    assert await names(house, "j-gpt") == ["local-1", "local-2", "local-3"]
    goes(supervisor, 2, 3)

    async def is_left() -> bool:
        return await names(house, "j-gpt") == ["local-2", "local-3"] and len(house.cluster.held) == 2

    await eventually(is_left)
    (found,) = await history(house, "j-gpt")
    assert (found["drained"], found["taken"]) == (["local-1"], ["local-3"]) and "disks" in found["why"]
    plan = next(row.data for row in await house.store.live_allocations("j-gpt") if row.kind == "supervisor")
    assert plan["change"] is None and [each["name"] for each in plan["nodes"]] == ["local-3", "local-2"]


class ByHand:
    """What a controller does of draining, at times of the test's choosing, for a job that trains on nodes 1 and 2 of
    four."""

    def __init__(self, house: House, lease: Lease) -> None:
        self.notices = DrainNotices(house.store, house.cluster)
        leader = replace(leader_context(house.store, lease, house.cluster), drain_notices=self.notices)
        self._draining = DrainReconciler(leader)
        self._store = house.store

    async def wish(self, number: int, requested_s: float, deadline_s: float) -> None:
        row = DrainRow(node(number).id, f"local-{number}", f"disks {number}", "test", requested_s, deadline_s)
        await self._store.drain(row)
        await self.notices.refresh()

    async def told(self, now: float) -> Any:
        """What the supervisor is told after a look."""
        job = await self._store.job("j-gpt")
        await self._draining.reconcile(job, status(), now)
        return self._draining.intents(job, JobAllocations(await self._store.live_allocations("j-gpt"))).change


@pytest.fixture
async def by_hand(house: House) -> ByHand:
    async with controlled(house):
        await runs(house)
    house.cluster.add_node(node(3))
    house.cluster.add_node(node(4))
    lease = await house.store.acquire_lease("test", 60.0)
    assert lease is not None
    return ByHand(house, lease)


async def test_notices_that_come_together_are_one_change(house: House, by_hand: ByHand) -> None:
    """The second comes a second later."""
    await by_hand.wish(1, 101.0, 900.0)
    assert await by_hand.told(101.5) is None
    await by_hand.wish(2, 102.0, 900.0)
    assert await by_hand.told(102.9) is None
    found = await by_hand.told(103.1)
    assert sorted(found.leaving.values()) == ["local-1", "local-2"]
    assert found.why == "node local-1 is drained: disks 1; node local-2 is drained: disks 2"
    plan = next(row.data for row in await house.store.live_allocations("j-gpt") if row.kind == "supervisor")
    assert [each["name"] for each in plan["nodes"]] == ["local-3", "local-4"]


async def test_a_wish_that_was_taken_back_since_the_last_look_moves_nobody(house: House, by_hand: ByHand) -> None:
    """A job that was placed on the node since would leave it again."""
    await by_hand.wish(1, 101.0, 900.0)
    await house.store.undrain([node(1).id])
    assert await by_hand.told(200.0) is None
    assert await names(house, "j-gpt") == ["local-1", "local-2"]


async def test_a_wish_that_came_anew_since_the_last_look_has_its_own_time(house: House, by_hand: ByHand) -> None:
    await by_hand.wish(1, 101.0, 900.0)
    await house.store.undrain([node(1).id])
    await house.store.drain(DrainRow(node(1).id, "local-1", "disks", "test", 199.0, 900.0))
    assert await by_hand.told(200.0) is None
    assert (await by_hand.told(201.1)).noticed_s == 199.0


async def test_a_nearer_deadline_holds_for_a_change_that_is_under_way(by_hand: ByHand) -> None:
    await by_hand.wish(1, 101.0, 900.0)
    assert (await by_hand.told(103.1)).deadline_s == 900.0
    await by_hand.wish(1, 110.0, 500.0)
    assert (await by_hand.told(110.1)).deadline_s == 500.0


async def test_nothing_new_is_placed_on_a_node_that_leaves(house: House) -> None:
    await drain(house, 1)
    async with controlled(house):
        job_id = await house.submit(dp=2)
        await house.supervisor(job_id)
        assert await names(house, job_id) == ["local-2"]
        await house.store.undrain([node(1).id])
        other = await house.submit("other", dp=2)
        await house.supervisor(other)
        assert await names(house, other) == ["local-1"]


async def test_a_node_that_cannot_take_over_is_given_back_and_another_found(
    running: tuple[House, FakeSupervisor],
) -> None:
    house, supervisor = running
    house.cluster.add_node(node(3))
    await drain(house, 1)
    await asyncio.wait_for(supervisor.wait_for_intent("change"), 10)
    house.cluster.add_node(node(4))
    target = sorted([node(2).id, node(3).id])
    supervisor.status = replace(supervisor.status, unready=UnreadyNodes(tuple(target), "no such interpreter"))

    async def is_other() -> bool:
        return await names(house, "j-gpt") == ["local-1", "local-2", "local-4"]

    await eventually(is_other)
    assert (await history(house, "j-gpt"))[0] == {"refused": ["local-3"], "why": "no such interpreter"}
    assert any("kill" in call and node(3).id[:8] in call for call in house.cluster.calls), "its agent is ended"


async def test_a_job_for_which_there_is_nothing_gives_up_in_time(running: tuple[House, FakeSupervisor]) -> None:
    house, supervisor = running
    await drain(house, 1, within_s=6.0)  # of which the first second is left to look for another node
    told = await asyncio.wait_for(supervisor.wait_for_intent("change"), 10)
    assert told["is_requeue"]
    assert "no node can replace it" in told["why"] and "no other node has capacity" in told["why"]
    assert time.time() < told["deadline_s"]
    await supervisor.state("QUEUED", "drained", told["why"])
    job = await house.until_state("j-gpt", JobState.QUEUED)
    assert job.reason == "drained"
    await eventually(lambda: house.cluster.held == {})
    house.cluster.add_node(node(3))
    await house.supervisor("j-gpt")
    assert await names(house, "j-gpt") == ["local-2", "local-3"]


async def test_a_supervisor_that_was_killed_meanwhile_is_born_where_the_ranks_are(
    running: tuple[House, FakeSupervisor],
) -> None:
    house, supervisor = running
    house.cluster.add_node(node(3))
    await drain(house, 1)
    await asyncio.wait_for(supervisor.wait_for_intent("change"), 10)
    name = next(iter(house.cluster.supervisors))
    del house.cluster.supervisors[name]
    await eventually(lambda: name in house.cluster.supervisors)
    born = house.cluster.supervisors[name]
    assert [each["name"] for each in born.payload["nodes"]] == ["local-1", "local-2"]
    assert [each["name"] for each in await born.wait_for_intent("nodes")] == ["local-3", "local-2"]


async def test_wishes_for_nodes_that_are_gone_are_forgotten(house: House) -> None:
    await drain(house, 1)
    assert isinstance(house.cluster, FakeCluster)
    house.cluster.remove_node(node(1).id)
    async with controlled(house):

        async def is_forgotten() -> bool:
            return await house.store.drains() == []

        await eventually(is_forgotten)
