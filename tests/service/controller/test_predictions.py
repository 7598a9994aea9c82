"""What is predicted of a job's generations, as they are heard of."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from regroup.service.controller.predictions import PredictionReconciler
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.spec.job import parse_spec
from regroup.service.store.records import Lease, NewJob
from regroup.service.store.store import Store
from tests.support.doubles.fake_cluster import FakeCluster
from tests.support.doubles.leader_context import leader_context
from tests.support.inputs.auto_layout_specs import auto_json, cpu_nodes
from tests.support.inputs.job_events import event_data
from tests.support.inputs.sync_records import status


@dataclass
class Stage:
    store: Store
    cluster: FakeCluster
    lease: Lease
    predicting: PredictionReconciler
    heard: int = 0

    async def submit(self, **changed: Any) -> None:
        whole = {**auto_json({"dp": {"min": 1, "target": 2, "max": 4}, "pp": 2}, micro_batch=2), **changed}
        spec = parse_spec({name: value for name, value in whole.items() if value is not None})
        await self.store.submit(NewJob("job_1", spec, "file:///s"), now=1.0, actor="test")

    async def forms(self, number: int, dp: int, *nodes: str) -> None:
        """A generation with as many ranks on each of these nodes."""
        layout = {"dp_shard": dp, "pp": 2}
        ranks = [{"rank": rank, "node_id": nodes[rank * len(nodes) // (2 * dp)]} for rank in range(2 * dp)]
        data = {"number": number, "layout": layout, "world_size": 2 * dp, "ranks": ranks, "start_step": 0}
        self.heard += 1
        data = event_data("generation", number, 5.0, data)
        event = SupervisorEvent(self.heard, f"generation:{number}", "generation", number, 5.0, data)
        await self.store.ingest(self.lease, "job_1", "boot", [event], {})

    async def look(self) -> dict[int, dict[str, Any]]:
        await self.predicting.reconcile(await self.store.job("job_1"), status(), 0.0)
        return await self.store.predictions.of_job("job_1")


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncGenerator[Stage]:
    store = await Store.open(f"sqlite:///{tmp_path}/regroup.db")
    lease = await store.acquire_lease("test", 60.0)
    assert lease is not None
    cluster = FakeCluster(cpu_nodes(4, 4))
    yield Stage(store, cluster, lease, PredictionReconciler(leader_context(store, lease, cluster)))
    await store.close()


async def test_each_generation_as_it_comes(stage: Stage) -> None:
    await stage.submit()
    assert await stage.look() == {}, "there is none yet"
    await stage.forms(1, 2, "n1", "n2")
    await stage.forms(2, 1, "n1")  # both came with one word
    found = await stage.look()
    assert (found[1]["device"], found[1]["ranks"], found[2]["ranks"]) == ("cpu", 4, 2)
    assert found[1]["bubble"] == pytest.approx(1 / 5) and found[2]["bubble"] == pytest.approx(1 / 9)
    assert found[1]["step_s"] > 0 and found[1]["peak_bytes"] > 0
    assert found[2]["step_s"] > found[1]["step_s"], "half of the ranks"


async def test_a_cluster_that_does_not_answer_is_asked_again(stage: Stage) -> None:
    await stage.submit()
    await stage.forms(1, 2, "n1", "n2")
    stage.cluster.reachable = False
    assert await stage.look() == {}
    stage.cluster.reachable = True
    assert set(await stage.look()) == {1}


async def test_nodes_that_are_gone_leave_a_reason(stage: Stage) -> None:
    await stage.submit()
    await stage.forms(1, 2, "n1", "n9")
    assert await stage.look() == {1: {"why_not": "nodes of the generation have left the cluster"}}


async def test_of_a_script_nothing_is_said_and_nobody_is_asked(stage: Stage) -> None:
    await stage.submit(workload={"kind": "script", "entrypoint": "/x.py"}, training=None, layout={"dp": 2})
    await stage.forms(1, 2, "n1")
    stage.cluster.reachable = False
    assert await stage.look() == {}
