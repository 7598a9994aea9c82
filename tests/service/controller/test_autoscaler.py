"""Requests to the autoscaler: nodes while jobs wait, and none when no job waits."""

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
from tests.service.controller.test_controller import TWO_NODES, ControlSetup, controlled, eventually
from tests.support.doubles.fake_clock import Clock
from tests.support.doubles.fake_cluster import FakeCluster
from tests.support.servers.stores import open_store

REQUEST = NodeRequest((Bundle(1), Bundle(1)), frozenset({"j"}))


async def test_a_request_is_repeated_while_it_is_current_and_withdrawn_once() -> None:
    cluster, clock = FakeCluster(), Clock()
    requests = AutoscalerRequests(cluster, clock)
    await requests.submit(NodeRequest())
    assert cluster.requested == [()], "a request that an earlier control plane may have sent is withdrawn"
    for now_s in (1.0, 2.0, 14.0, 17.0):
        clock.now_s = now_s
        await requests.submit(REQUEST)
    assert cluster.requested[1:] == [REQUEST.bundles] * 2
    for now_s in (18.0, 60.0):
        clock.now_s = now_s
        await requests.submit(NodeRequest())
    assert cluster.requested[3:] == [()], "requests of other clients are not overwritten"
    cluster.reachable = False
    with pytest.raises(ClusterUnavailableError):
        await requests.submit(REQUEST)
    cluster.reachable = True
    await requests.submit(REQUEST)
    assert cluster.requested[-1] == REQUEST.bundles, "the first attempt did not reach the cluster"


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncGenerator[ControlSetup]:
    settings = Settings(state_dir=tmp_path, sync_wait_s=5, autoscale=True, autoscale_after_s=0)
    store = await open_store(settings.database_url)
    yield ControlSetup(store, FakeCluster(TWO_NODES), settings)
    await store.close()


async def test_the_request_ends_when_the_requested_nodes_have_joined(setup: ControlSetup) -> None:
    async with controlled(setup):
        await setup.submit("runs", dp=4)
        await setup.until_state("j-runs", JobState.STARTING)
        await setup.submit("waits", dp=2)

        await setup.until("j-waits", lambda row: "NodesRequested" in [each.type for each in row.conditions])
        await eventually(lambda: setup.cluster.requested[-1] == (Bundle(1), Bundle(1), Bundle(2), Bundle(2)))
        text = (await Metrics(setup.store, QuarantinePolicy(3600.0, 600.0)).render()).decode()
        assert "regroup_queue_nodes_requested_jobs 1.0" in text
        setup.cluster.add_node(Node(id="3" * 40, name="local-3", address="10.0.0.1", cpus=2, free_cpus=2))
        await setup.until_state("j-waits", JobState.STARTING)
        await eventually(lambda: setup.cluster.requested[-1] == ())


async def test_without_autoscaling_no_nodes_are_requested(setup: ControlSetup) -> None:
    setup.settings = setup.settings.model_copy(update={"autoscale": False})
    async with controlled(setup):
        await setup.submit("large", dp=8)
        job = await setup.until("j-large", lambda row: bool(row.conditions))
        assert [each.type for each in job.conditions] == ["Placeable"]
        assert setup.cluster.requested == []
