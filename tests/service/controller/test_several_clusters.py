"""The controller with two clusters: jobs run where they belong, and an outage of one cluster touches no other."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from regroup.service.cluster_state.cluster_directory import ClusterDirectory
from regroup.service.domain.states import JobState
from regroup.service.domain.topology import Node
from regroup.service.ports.cluster import supervisor_name
from regroup.service.remote_cluster.federation import Federation
from regroup.service.settings import Settings
from tests.service.controller.test_controller import TWO_NODES, ControlSetup, controlled, eventually
from tests.support.doubles.fake_cluster import FakeCluster, FakeSupervisor
from tests.support.servers.stores import open_store

WEST = [Node(id=f"{n}" * 40, name=f"local-{n}", address="10.1.0.1", cpus=2, free_cpus=2) for n in (8, 9)]


@dataclass
class TwoClusters:
    """A controller's surroundings with two clusters."""

    setup: ControlSetup
    east: FakeCluster
    west: FakeCluster

    async def start(self, name: str, cluster: str | None = None) -> FakeSupervisor:
        """Submit a job, and wait for its supervisor."""
        job_id = await self.setup.submit(name, resources={"cluster": cluster})
        await self.setup.until(job_id, lambda job: job.state not in (JobState.QUEUED, JobState.PLACING))
        return (self.west if cluster else self.east).supervisors[supervisor_name(job_id)]

    async def train_in_the_west(self) -> FakeSupervisor:
        """Return the supervisor of job `there`, which trains in the west."""
        supervisor = await self.start("there", "west")
        await supervisor.state("RUNNING", "first_step")
        await self.setup.until_state("j-there", JobState.RUNNING)
        return supervisor


@pytest.fixture
async def two(tmp_path: Path) -> AsyncGenerator[TwoClusters]:
    settings = Settings(state_dir=tmp_path, gang_timeout_s=1, supervisor_silence_s=0.2, sync_wait_s=5, lease_s=1.5,
                        reap_interval_s=0.1)  # fmt: skip
    store = await open_store(settings.database_url)
    east, west = FakeCluster(TWO_NODES), FakeCluster(WEST)
    federation = Federation({"": east, "west": west}, ClusterDirectory(store), patience_s=0.2)
    yield TwoClusters(ControlSetup(store, federation, settings), east, west)  # type: ignore[arg-type]
    await store.close()


async def test_jobs_run_in_their_clusters_and_release_everything_there(two: TwoClusters) -> None:
    async with controlled(two.setup):
        here, there = await two.start("here"), await two.start("there", "west")
        assert [node["name"] for node in here.payload["nodes"]] == ["local-1", "local-2"]
        assert [node["name"] for node in there.payload["nodes"]] == ["west:local-8", "west:local-9"]
        assert {held.job_id for held in two.west.held.values()} == {"j-there"}
        third = await two.setup.submit("third", dp=2, resources={"cluster": "west"})
        waits = await two.setup.until(third, lambda job: bool(job.conditions))
        assert "west:local-8" in waits.conditions[0].message and "local-1" not in waits.conditions[0].message
        for supervisor in (here, there):
            await supervisor.state("RUNNING", "first_step")
            await supervisor.state("SUCCEEDED", "completed")
        await two.setup.until_state("j-there", JobState.SUCCEEDED)
        await eventually(lambda: not two.east.held and "j-there" in two.west.forgotten)
        await two.setup.until(third, lambda job: job.state is not JobState.QUEUED)


async def test_an_outage_of_one_cluster_neither_stops_the_other_nor_loses_its_jobs(two: TwoClusters) -> None:
    async with controlled(two.setup):
        there = await two.train_in_the_west()
        two.west.reachable = False
        here = await two.start("here")
        await here.state("RUNNING", "first_step")
        await here.state("SUCCEEDED", "completed")
        await two.setup.until_state("j-here", JobState.SUCCEEDED)
        await eventually(lambda: not two.east.held)
        silent = await two.setup.until("j-there", lambda job: bool(job.conditions))
        assert silent.state is JobState.RUNNING and silent.conditions[0].reason == "silent"
        waiting = await two.setup.submit("waiting", dp=2, resources={"cluster": "west"})
        waits = await two.setup.until(waiting, lambda job: bool(job.conditions))
        assert "in a cluster that does not answer" in waits.conditions[0].message
        two.west.reachable = True
        await there.state("SUCCEEDED", "completed")
        ended = await two.setup.until_state("j-there", JobState.SUCCEEDED)
        assert ended.generation == 0
        assert list(await two.setup.store.incidents("j-there")) == []
        await two.setup.until(waiting, lambda job: job.state is not JobState.QUEUED)


async def test_a_server_that_starts_in_an_outage_keeps_the_jobs_there(two: TwoClusters) -> None:
    async with controlled(two.setup):
        there = await two.train_in_the_west()
    directory = ClusterDirectory(two.setup.store)
    again = Federation({"": two.east, "west": two.west}, directory, patience_s=0.2)
    two.west.reachable = False
    async with controlled(replace(two.setup, cluster=again)):  # type: ignore[arg-type]
        listed = {node.name: node.closed_reason for node in await again.nodes()}
        assert listed.keys() == {"local-1", "local-2", "west:local-8", "west:local-9"}
        assert listed["west:local-8"] and not listed["local-1"]
        await two.start("here")
        assert (await two.setup.store.job("j-there")).state is JobState.RUNNING
        assert two.west.held and two.west.supervisors
        two.west.reachable = True
        await there.state("SUCCEEDED", "completed")
        await two.setup.until_state("j-there", JobState.SUCCEEDED)
        await eventually(lambda: not two.west.held)
