"""The autoscaler is asked for nodes while jobs wait, and told when they do not."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from regroup.service.controller.scheduling import AutoscalerRequests
from regroup.service.domain.states import JobState
from regroup.service.observability.prometheus import Metrics
from regroup.service.policy.detection.node_quarantine import QuarantinePolicy
from regroup.service.policy.scheduling.autoscaler_request import Bundle, NodeRequest
from regroup.service.ports.cluster import ClusterUnavailableError, Node
from regroup.service.settings import Settings
from regroup.service.store.store import Store
from tests.service.controller.test_controller import TWO_NODES, House, controlled, eventually
from tests.support.doubles.fake_clock import Clock
from tests.support.doubles.fake_cluster import FakeCluster

ASKED = NodeRequest((Bundle(1), Bundle(1)), frozenset({"j"}))


async def test_it_is_said_again_while_it_holds_and_taken_back_once() -> None:
    cluster, clock = FakeCluster(), Clock()
    asking = AutoscalerRequests(cluster, clock)
    await asking.submit(NodeRequest())
    assert cluster.requested == [()], "what a control plane before may have asked for is wanted no longer"
    for now_s in (1.0, 2.0, 14.0, 17.0):
        clock.now_s = now_s
        await asking.submit(ASKED)
    assert cluster.requested[1:] == [ASKED.bundles] * 2
    for now_s in (18.0, 60.0):
        clock.now_s = now_s
        await asking.submit(NodeRequest())
    assert cluster.requested[3:] == [()], "whoever else asks is not talked over"
    cluster.reachable = False
    with pytest.raises(ClusterUnavailableError):
        await asking.submit(ASKED)
    cluster.reachable = True
    await asking.submit(ASKED)
    assert cluster.requested[-1] == ASKED.bundles, "it was not heard before"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncGenerator[House]:
    settings = Settings(state_dir=tmp_path, sync_wait_s=5, autoscale=True, autoscale_after_s=0)
    store = await Store.open(settings.database_url)
    yield House(store, FakeCluster(TWO_NODES), settings)
    await store.close()


async def test_nodes_are_asked_for_come_and_are_no_longer_asked_for(house: House) -> None:
    async with controlled(house):
        await house.submit("runs", dp=4)
        await house.until_state("j-runs", JobState.STARTING)
        await house.submit("waits", dp=2)

        await house.until("j-waits", lambda row: "NodesRequested" in [each.type for each in row.conditions])
        await eventually(lambda: house.cluster.requested[-1] == (Bundle(1), Bundle(1), Bundle(2), Bundle(2)))
        text = (await Metrics(house.store, QuarantinePolicy(3600.0, 600.0)).render()).decode()
        assert "regroup_queue_nodes_requested_jobs 1.0" in text
        house.cluster.add_node(Node(id="3" * 40, name="local-3", address="10.0.0.1", cpus=2, free_cpus=2))
        await house.until_state("j-waits", JobState.STARTING)
        await eventually(lambda: house.cluster.requested[-1] == ())


async def test_nobody_is_asked_unless_that_is_wanted(house: House) -> None:
    house.settings = house.settings.model_copy(update={"autoscale": False})
    async with controlled(house):
        await house.submit("large", dp=8)
        job = await house.until("j-large", lambda row: bool(row.conditions))
        assert [each.type for each in job.conditions] == ["Placeable"]
        assert house.cluster.requested == []
