"""Prewarmed nodes, with a fake clock."""

from dataclasses import replace
from pathlib import Path

import pytest

from regroup.service.controller.prewarm import Prewarmer
from regroup.service.ports.cluster import Node, Reservation
from regroup.service.settings import Settings
from regroup.workers.agent.standby import IDLE_TIMEOUT_S
from tests.support.doubles.fake_clock import Clock
from tests.support.doubles.fake_cluster import FakeCluster

CONTROL = Node(id="c", name="control", address="10.0.0.1", cpus=0, free_cpus=0, is_control=True)
FREE = Node(id="r", name="free", address="10.0.0.2", cpus=2, free_cpus=2)
FULL = Node(id="f", name="full", address="10.0.0.3", cpus=2, free_cpus=2)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make_prewarmer(cluster: FakeCluster, clock: Clock, folder: Path, *, standby: bool = True) -> Prewarmer:
    return Prewarmer(cluster, Settings(state_dir=folder, standby=standby), clock)


async def test_control_nodes_get_a_process_and_free_nodes_a_standby_agent(clock: Clock, tmp_path: Path) -> None:
    cluster = FakeCluster([CONTROL, FREE, FULL, replace(FREE, id="d", is_draining=True)])
    await cluster.create_reservation(Reservation("regroup-reservation:j:f:1", "j", "f", 2, "cpu", 2))
    prewarmer = make_prewarmer(cluster, clock, tmp_path)
    await prewarmer.prewarm_nodes(await cluster.nodes())
    await prewarmer.prewarm_nodes(await cluster.nodes())
    assert cluster.warmed == ["prestart c", "stand by r"], "once, and nothing on a full or draining node"


async def test_nodes_of_a_cluster_that_does_not_answer_are_left_alone(clock: Clock, tmp_path: Path) -> None:
    silent = "in a cluster that does not answer"
    cluster = FakeCluster([replace(CONTROL, closed_reason=silent), replace(FREE, closed_reason=silent), FULL])
    await make_prewarmer(cluster, clock, tmp_path).prewarm_nodes(await cluster.nodes())
    assert cluster.warmed == ["stand by f"]


async def test_a_standby_agent_is_queried_and_its_preflight_failure_returned(clock: Clock, tmp_path: Path) -> None:
    cluster = FakeCluster([CONTROL, FREE])
    cluster.unfit = {"r": "core 3 multiplies wrongly"}
    prewarmer = make_prewarmer(cluster, clock, tmp_path)
    await prewarmer.prewarm_nodes(await cluster.nodes())
    assert await prewarmer.prewarm_nodes(await cluster.nodes()) == [], "not in every pass"
    clock.now_s += 20
    assert [(node.id, why) for node, why in await prewarmer.prewarm_nodes(await cluster.nodes())] == [
        ("r", "core 3 multiplies wrongly")
    ]
    clock.now_s += 20
    assert await prewarmer.prewarm_nodes(await cluster.nodes()) == [], "later queries are sent with the reminders"
    unchecked = Prewarmer(cluster, Settings(state_dir=tmp_path, preflight=False), clock)
    assert await unchecked.prewarm_nodes(await cluster.nodes()) == []


async def test_standby_agents_get_a_reminder_before_their_idle_timeout(clock: Clock, tmp_path: Path) -> None:
    cluster = FakeCluster([CONTROL, FREE])
    prewarmer = make_prewarmer(cluster, clock, tmp_path)
    await prewarmer.prewarm_nodes(await cluster.nodes())
    clock.now_s += IDLE_TIMEOUT_S / 2
    await prewarmer.prewarm_nodes(await cluster.nodes())
    assert cluster.warmed == ["prestart c", "stand by r", "stand by r"]


async def test_a_used_standby_is_replaced_and_the_control_process_after_a_delay(clock: Clock, tmp_path: Path) -> None:
    cluster = FakeCluster([CONTROL, FREE])
    prewarmer = make_prewarmer(cluster, clock, tmp_path)
    await prewarmer.prewarm_nodes(await cluster.nodes())
    prewarmer.mark_used(["r"])
    await prewarmer.prewarm_nodes(await cluster.nodes())
    assert cluster.warmed == ["prestart c", "stand by r", "stand by r"]
    clock.now_s += 60
    await prewarmer.prewarm_nodes(await cluster.nodes())
    assert cluster.warmed[3:] == ["prestart c", "stand by r"], "the new standby agent is queried as well"


async def test_without_standby_agents_every_node_has_a_process(clock: Clock, tmp_path: Path) -> None:
    cluster = FakeCluster([CONTROL, FREE, FULL])
    await cluster.create_reservation(Reservation("regroup-reservation:j:f:1", "j", "f", 2, "cpu", 2))
    await make_prewarmer(cluster, clock, tmp_path, standby=False).prewarm_nodes(await cluster.nodes())
    assert cluster.warmed == ["prestart c", "prestart r", "prestart f"]
