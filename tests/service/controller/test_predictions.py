"""Predictions for the generations of a job, made when a generation forms."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from regroup.service.controller.predictions import PredictionReconciler
from regroup.service.domain.author import Author
from regroup.service.planner.host_memory import host_memory_from
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.records import Lease, NewJob
from regroup.service.store.store import Store
from tests.support.doubles.fake_cluster import FakeCluster
from tests.support.doubles.leader_context import leader_context
from tests.support.inputs.auto_layout_specs import auto_json, cpu_nodes
from tests.support.inputs.job_events import event_data
from tests.support.inputs.sync_records import status
from tests.support.servers.stores import open_store


@dataclass
class Setup:
    store: Store
    cluster: FakeCluster
    lease: Lease
    reconciler: PredictionReconciler
    emitted: int = 0

    async def submit(self, **changed: Any) -> None:
        whole = {**auto_json({"dp": {"min": 1, "target": 2, "max": 4}, "pp": 2}, micro_batch=2), **changed}
        spec = parse_spec({name: value for name, value in whole.items() if value is not None})
        await self.store.submissions.submit(NewJob("job_1", spec, "file:///s"), now=1.0, author=Author("test"))

    async def start_generation(self, number: int, dp: int, *nodes: str) -> None:
        """Start a generation with the same number of ranks on each node."""
        layout = {"dp_shard": dp, "pp": 2}
        ranks = [{"rank": rank, "node_id": nodes[rank * len(nodes) // (2 * dp)]} for rank in range(2 * dp)]
        data = {"number": number, "layout": layout, "world_size": 2 * dp, "ranks": ranks, "start_step": 0}
        self.emitted += 1
        data = event_data("generation", number, 5.0, data)
        event = SupervisorEvent(self.emitted, f"generation:{number}", "generation", number, 5.0, data)
        await self.store.ingest(self.lease, "job_1", "boot", [event], {})

    async def reconcile(self) -> dict[int, dict[str, Any]]:
        await self.reconciler.reconcile(await self.store.job("job_1"), status(), 0.0)
        return await self.store.predictions.of_job("job_1")


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncGenerator[Setup]:
    store = await open_store(f"sqlite:///{tmp_path}/regroup.db")
    lease = await store.acquire_lease("test", 60.0)
    assert lease is not None
    cluster = FakeCluster(cpu_nodes(4, 4))
    yield Setup(store, cluster, lease, PredictionReconciler(leader_context(store, lease, cluster)))
    await store.close()


async def test_each_new_generation_has_a_prediction(setup: Setup) -> None:
    await setup.submit()
    assert await setup.reconcile() == {}, "no generation has formed yet"
    await setup.start_generation(1, 2, "n1", "n2")
    await setup.start_generation(2, 1, "n1")  # Both arrive before the next pass.
    found = await setup.reconcile()
    assert (found[1]["device"], found[1]["ranks"], found[2]["ranks"]) == ("cpu", 4, 2)
    assert found[1]["bubble"] == pytest.approx(1 / 5) and found[2]["bubble"] == pytest.approx(1 / 9)
    assert found[1]["step_s"] > 0 and found[1]["peak_bytes"] > 0
    assert found[2]["step_s"] > found[1]["step_s"], "half of the ranks"
    two_nodes, one_node = (host_memory_from(found[number]) for number in (1, 2))
    assert two_nodes is not None and (two_nodes.ranks, two_nodes.sets, two_nodes.node_bytes) == (2, 4, 8e9)
    assert one_node is not None and (one_node.ranks, one_node.sets) == (2, 2), "no mirrors on one node"


async def test_an_unreachable_cluster_is_queried_again(setup: Setup) -> None:
    await setup.submit()
    await setup.start_generation(1, 2, "n1", "n2")
    setup.cluster.reachable = False
    assert await setup.reconcile() == {}
    setup.cluster.reachable = True
    assert set(await setup.reconcile()) == {1}


async def test_a_prediction_without_its_nodes_has_a_reason(setup: Setup) -> None:
    await setup.submit()
    await setup.start_generation(1, 2, "n1", "n9")
    assert await setup.reconcile() == {1: {"why_not": "nodes of the generation have left the cluster"}}


async def test_a_script_job_has_no_prediction_and_causes_no_query(setup: Setup) -> None:
    await setup.submit(workload={"kind": "script", "entrypoint": "/x.py"}, training=None, layout={"dp": 2})
    await setup.start_generation(1, 2, "n1")
    setup.cluster.reachable = False
    assert await setup.reconcile() == {}
