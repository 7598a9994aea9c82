"""Free capacity is read once for all jobs that search for it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from regroup.service.cluster_state.free_capacity import FreeCapacity
from regroup.service.domain.topology import Node
from regroup.service.policy.placement.demand import Demand
from regroup.service.store.store import Store
from tests.support.doubles.fake_cluster import FakeCluster
from tests.support.doubles.leader_context import leader_context
from tests.support.servers.statements import recorded_statements
from tests.support.servers.stores import open_store

_CPU = Node("c", "c", "10.0.0.1", cpus=8, free_cpus=8, memory_bytes=1, free_memory_bytes=1)
_GPU = replace(_CPU, id="g", name="g", gpus=8, free_gpus=8)
_FULL = replace(_GPU, id="full", name="full", gpus=0, cpus=0, free_gpus=0, free_cpus=0)
_DRAINING = replace(_GPU, id="draining", name="draining", is_draining=True)


class CountingCluster(FakeCluster):
    """A cluster whose nodes take a time to list."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__(nodes)
        self.reads = 0

    async def nodes(self) -> list[Node]:
        self.reads += 1
        await asyncio.sleep(0)
        return list(await super().nodes())


@dataclass
class Clock:
    now_s: float = 100.0
    step_s: float = 0.0
    """Seconds that pass with each reading of the clock."""

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(f"sqlite:///{tmp_path}/regroup.db")
    yield opened
    await opened.close()


async def test_all_searches_of_a_moment_share_one_reading(store: Store) -> None:
    lease = await store.acquire_lease("one", 60.0)
    assert lease is not None
    cluster, clock = CountingCluster([_CPU, _GPU, _FULL, _DRAINING]), Clock()
    leader, capacity = leader_context(store, lease, cluster), FreeCapacity(store, clock)
    with recorded_statements(store) as first:
        found = await capacity.read(leader.health, 0.0)
    with recorded_statements(store) as others:
        assert all(
            each is found for each in await asyncio.gather(*(capacity.read(leader.health, 0.0) for _ in range(50)))
        )
    assert first and not others and cluster.reads == 1
    clock.now_s += 0.9
    assert await capacity.read(leader.health, 0.0) is found
    clock.now_s += 0.2
    assert await capacity.read(leader.health, 0.0) is not found and cluster.reads == 2
    capacity.drop()
    await capacity.read(leader.health, 0.0)
    assert cluster.reads == 3


async def test_a_reading_that_takes_long_is_used_for_longer(store: Store) -> None:
    lease = await store.acquire_lease("one", 60.0)
    assert lease is not None
    cluster, clock = CountingCluster([_GPU]), Clock(step_s=0.05)
    leader, capacity = leader_context(store, lease, cluster), FreeCapacity(store, clock)
    await capacity.read(leader.health, 0.0)
    clock.now_s += 2.0
    await capacity.read(leader.health, 0.0)
    assert cluster.reads == 1, "it took 0.05 s, which is 2 % of 2.5 s"
    clock.now_s += 3.0
    await capacity.read(leader.health, 0.0)
    assert cluster.reads == 2


async def test_a_job_may_use_free_nodes_and_its_own(store: Store) -> None:
    lease = await store.acquire_lease("one", 60.0)
    assert lease is not None
    cluster = CountingCluster([_CPU, _GPU, _FULL, _DRAINING])
    found = await FreeCapacity(store).read(leader_context(store, lease, cluster).health, 0.0)

    def names(demand: Demand, own: Sequence[str], unusable: Sequence[str] = ()) -> set[str]:
        return {node.name for node in found.of_job(demand, own, unusable)}

    cpu, gpu = Demand(1, 1, "cpu", 1), Demand(1, 1, "cuda", 1)
    assert names(cpu, []) == {"c", "g"} and names(gpu, []) == {"g"}
    assert names(gpu, ["full", "gone"]) == {"full", "g"} and names(gpu, ["full"], ["g"]) == {"full"}
    assert not found.is_awaited
