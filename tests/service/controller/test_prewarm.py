"""Which nodes are kept warm, and when, on a clock of the test's own."""

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
ROOM = Node(id="r", name="room", address="10.0.0.2", cpus=2, free_cpus=2)
FULL = Node(id="f", name="full", address="10.0.0.3", cpus=2, free_cpus=2)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def warmth(cluster: FakeCluster, clock: Clock, folder: Path, *, standby: bool = True) -> Prewarmer:
    return Prewarmer(cluster, Settings(state_dir=folder, standby=standby), clock)


async def test_a_process_on_control_nodes_a_standby_where_there_is_room(clock: Clock, tmp_path: Path) -> None:
    cluster = FakeCluster([CONTROL, ROOM, FULL, replace(ROOM, id="d", is_draining=True)])
    await cluster.create_reservation(Reservation("regroup-reservation:j:f:1", "j", "f", 2, "cpu", 2))
    kept = warmth(cluster, clock, tmp_path)
    await kept.prewarm_nodes()
    await kept.prewarm_nodes()
    assert cluster.warmed == ["prestart c", "stand by r"], "once, and nothing on a full or draining node"


async def test_a_new_standby_is_soon_asked_what_it_has_found_and_the_bad_node_is_told(
    clock: Clock, tmp_path: Path
) -> None:
    cluster = FakeCluster([CONTROL, ROOM])
    cluster.unfit = {"r": "core 3 multiplies wrongly"}
    kept = warmth(cluster, clock, tmp_path)
    await kept.prewarm_nodes()
    assert await kept.prewarm_nodes() == [], "not at each look"
    clock.now_s += 20
    assert [(node.id, why) for node, why in await kept.prewarm_nodes()] == [("r", "core 3 multiplies wrongly")]
    clock.now_s += 20
    assert await kept.prewarm_nodes() == [], "from then on when it is reminded"
    unchecked = Prewarmer(cluster, Settings(state_dir=tmp_path, preflight=False), clock)
    assert await unchecked.prewarm_nodes() == []


async def test_standbys_are_reminded_before_they_end(clock: Clock, tmp_path: Path) -> None:
    cluster = FakeCluster([CONTROL, ROOM])
    kept = warmth(cluster, clock, tmp_path)
    await kept.prewarm_nodes()
    clock.now_s += IDLE_TIMEOUT_S / 2
    await kept.prewarm_nodes()
    assert cluster.warmed == ["prestart c", "stand by r", "stand by r"]


async def test_what_a_job_took_is_replaced_and_the_control_node_waits_until_it_has_started(
    clock: Clock, tmp_path: Path
) -> None:
    cluster = FakeCluster([CONTROL, ROOM])
    kept = warmth(cluster, clock, tmp_path)
    await kept.prewarm_nodes()
    kept.mark_used(["r"])
    await kept.prewarm_nodes()
    assert cluster.warmed == ["prestart c", "stand by r", "stand by r"]
    clock.now_s += 60
    await kept.prewarm_nodes()
    assert cluster.warmed[3:] == ["prestart c", "stand by r"], "the new one is asked what it has found, too"


async def test_without_standbys_every_node_keeps_a_process(clock: Clock, tmp_path: Path) -> None:
    cluster = FakeCluster([CONTROL, ROOM, FULL])
    await cluster.create_reservation(Reservation("regroup-reservation:j:f:1", "j", "f", 2, "cpu", 2))
    await warmth(cluster, clock, tmp_path, standby=False).prewarm_nodes()
    assert cluster.warmed == ["prestart c", "prestart r", "prestart f"]
