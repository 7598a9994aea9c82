"""Several clusters as one: routes of calls, and clusters that do not answer, answer late, or were never seen."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from regroup.service.cluster_state.topology import Topology
from regroup.service.domain.errors import NotFoundError
from regroup.service.domain.topology import MACHINE_LABEL, Node, NodeKind, domains_of
from regroup.service.policy.scheduling.autoscaler_request import Bundle
from regroup.service.ports.cluster import (
    Cluster,
    ClusterUnavailableError,
    Reservation,
    supervisor_name,
)
from regroup.service.remote_cluster.federation import Federation
from regroup.service.remote_cluster.wire import ClusterFaultError
from regroup.service.settings import Settings
from tests.support.doubles.fake_cluster import FakeCluster
from tests.support.inputs.sync_records import start_config

EAST = Node("e1", "gpu-1", "10.0.0.1", cpus=8.0, free_cpus=8.0, labels={"regroup.io/rack": "r7"})
WEST = replace(EAST, id="w1", labels={"regroup.io/rack": "r7", MACHINE_LABEL: "m1"})


class Jobs:
    """The clusters of jobs, without a database."""

    def __init__(self) -> None:
        self.clusters = {"j-east": "", "j-west": "west", "j-north": "north"}
        self.used: list[Node] = []

    async def cluster_of(self, job_id: str) -> str:
        if job_id not in self.clusters:
            raise NotFoundError(f"no job {job_id}")
        return self.clusters[job_id]

    async def used_nodes(self) -> Sequence[Node]:
        return self.used


class SlowCluster(FakeCluster):
    """A cluster whose list of nodes can be held back."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__(nodes)
        self.gate, self.read = asyncio.Event(), asyncio.Event()
        self.gate.set()

    async def nodes(self) -> Sequence[Node]:
        await self.gate.wait()
        self.read.set()
        return await super().nodes()


class Both:
    """Two clusters, the default one in the east, and their federation."""

    def __init__(self) -> None:
        self.east, self.west, self.jobs = SlowCluster([EAST]), SlowCluster([WEST]), Jobs()
        self.all: Cluster = Federation({"": self.east, "west": self.west}, self.jobs, patience_s=0.2)


def reservation(job_id: str, node_id: str) -> Reservation:
    return Reservation(f"regroup-reservation:{job_id}:{node_id}:1", job_id, node_id, 1, "cpu", 1)


async def test_nodes_of_other_clusters_have_names_of_their_own() -> None:
    both = Both()
    east, west = await both.all.nodes()
    assert (east.name, east.machine, east.cluster) == ("gpu-1", "gpu-1", ""), "the default cluster keeps its names"
    assert (west.name, west.machine, west.cluster) == ("west:gpu-1", "west:m1", "west")
    assert (west.kind, west.closed_reason) == (NodeKind(cluster="west"), "")


async def test_racks_of_the_same_name_are_different_domains() -> None:
    both = Both()
    located = Federation({"": both.east, "west": both.west}, both.jobs, Topology(Settings()))
    east, west = await located.nodes()
    assert domains_of(east) == ("", "", "r7", "")
    assert domains_of(west) == ("", "", "west:r7", "")


async def test_calls_go_to_the_cluster_of_their_job_or_node() -> None:
    both = Both()
    for job_id, node_id in (("j-east", "e1"), ("j-west", "w1")):
        await both.all.create_reservation(reservation(job_id, node_id))
        await both.all.start_supervisor(supervisor_name(job_id), replace(start_config(), job_id=job_id))
    assert {each.job_id for each in both.east.held.values()} == {"j-east"}
    assert both.west.supervisors.keys() == {supervisor_name("j-west")}
    assert len(await both.all.reservations()) == 2 and len(await both.all.actors()) == 2
    assert await both.all.actors("j-west") == {supervisor_name("j-west")}
    for node in await both.all.nodes():
        await both.all.stand_by(node, "", preflight=False)
        await both.all.prestart(node)
    assert both.west.warmed == ["stand by w1", "prestart w1"] and len(both.east.warmed) == 2
    both.west.recorded, both.west.lost = {"j-west"}, ["gpu-9"]
    assert await both.all.recorded_jobs() == {"j-west"}
    assert await both.all.lost_nodes() == ["west:gpu-9"]
    await both.all.stop_supervisor(supervisor_name("j-west"))
    await both.all.release_reservation(reservation("j-west", "w1").name)
    await both.all.forget_job("j-west")
    assert not both.west.supervisors and not both.west.held and both.west.forgotten == ["j-west"]
    assert both.east.supervisors and both.east.held and not both.east.forgotten


async def test_each_autoscaler_gets_the_bundles_of_its_cluster() -> None:
    both = Both()
    here, there = Bundle(2), Bundle(4, kind=NodeKind(cluster="west"))
    await both.all.request_nodes([here, there])
    await both.all.request_nodes([here])
    assert both.east.requested == [(here,), (here,)] and both.west.requested == [(there,), ()]


async def test_a_cluster_that_does_not_answer_keeps_its_nodes_closed_and_stops_no_other() -> None:
    both = Both()
    await both.all.create_reservation(reservation("j-west", "w1"))
    await both.all.nodes()
    both.west.reachable = False
    east, west = await both.all.nodes()
    assert (east.closed_reason, west.alive, west.id) == ("", True, "w1")
    assert west.closed_reason.startswith("in a cluster that does not answer: ")
    assert (await both.all.unreachable()).keys() == {"west"}
    assert await both.all.reservations() == set(), "only those of clusters that answer"
    with pytest.raises(ClusterUnavailableError):  # so nothing of it counts as lost
        await both.all.reservations("j-west")
    await both.all.create_reservation(reservation("j-east", "e1"))
    await both.all.request_nodes([Bundle(2)])
    both.east.reachable = False
    assert await both.all.dashboard_url() is None, "a server starts while its default cluster does not answer"
    both.east.reachable = both.west.reachable = True
    await both.all.nodes()
    assert [node.closed_reason for node in await both.all.nodes()] == ["", ""]
    assert await both.all.unreachable() == {}


async def test_a_gateway_that_fails_stops_no_other_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Both()

    async def fail() -> None:
        raise ClusterFaultError("KeyError in the gateway")

    for name in ("nodes", "reservations", "lost_nodes"):
        monkeypatch.setattr(both.west, name, fail)
    assert [node.name for node in await both.all.nodes()] == ["gpu-1"]
    assert await both.all.unreachable() == {"west": "KeyError in the gateway"}
    assert await both.all.reservations() == set() and await both.all.lost_nodes() == []


async def test_no_cluster_answers() -> None:
    both = Both()
    both.east.reachable = both.west.reachable = False
    for call in (both.all.nodes(), both.all.reservations(), both.all.lost_nodes(), both.all.request_nodes([])):
        with pytest.raises(ClusterUnavailableError):
            await call


async def test_a_silent_cluster_delays_one_reading_and_its_late_answer_is_used() -> None:
    both = Both()
    await both.all.nodes()
    both.west.gate.clear()
    began = time.monotonic()
    assert [bool(node.closed_reason) for node in await both.all.nodes()] == [False, True]
    assert time.monotonic() - began > 0.15
    began = time.monotonic()
    for _ in range(20):
        await both.all.nodes()
    assert time.monotonic() - began < 0.15, "it is not waited for again"
    both.west.add_node(replace(WEST, id="w2", name="gpu-2"))
    both.west.read.clear()
    both.west.gate.set()
    await both.west.read.wait()
    await both.all.nodes()
    assert [node.name for node in await both.all.nodes()] == ["gpu-1", "west:gpu-1", "west:gpu-2"]


async def test_nodes_of_a_cluster_that_was_never_seen_are_those_of_the_database() -> None:
    both = Both()
    both.west.reachable = False
    used = Node("w7", "west:gpu-7", "", cluster="west")
    both.jobs.used = [used, Node("e9", "gpu-9", "")]
    east, west = await both.all.nodes()
    assert (east.id, west.id, west.alive) == ("e1", "w7", True), "a server that starts treats it as alive"
    assert west.closed_reason
    both.west.reachable = True
    await both.all.nodes()
    assert [node.id for node in await both.all.nodes()] == ["e1", "w1"]


async def test_a_job_of_a_removed_cluster_and_an_unknown_job() -> None:
    both = Both()
    with pytest.raises(ClusterUnavailableError, match="cluster north is not in the clusters file: add it again"):
        await both.all.stacks("j-north")
    with pytest.raises(NotFoundError):
        await both.all.stacks("j-none")
