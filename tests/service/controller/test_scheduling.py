"""The queue in the controller: preemption, quotas and dependencies."""

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regroup.service.cluster_state.probe_results import FUNCTION, LABEL
from regroup.service.controller.controller import Controller
from regroup.service.domain.author import Author
from regroup.service.domain.states import JobState, Reason
from regroup.service.domain.topology import DEFAULT_LABELS, Level
from regroup.service.observability.prometheus import Metrics
from regroup.service.policy.detection.node_quarantine import QuarantinePolicy
from regroup.service.ports.cluster import Node, supervisor_name
from regroup.service.settings import Settings
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.records import JobRow, NewJob, ProjectRow
from regroup.service.store.store import Store
from tests.support.doubles.fake_cluster import FakeCluster, FakeSupervisor
from tests.support.inputs.probe_output import end, probe_result
from tests.support.servers.stores import open_store

NODE = Node(id="1" * 40, name="local-1", address="10.0.0.1", cpus=4, free_cpus=4)


class QueueSetup:
    """A controller with an in-memory cluster and a real store."""

    def __init__(self, store: Store, cluster: FakeCluster) -> None:
        self.store, self.cluster = store, cluster

    async def submit(self, name: str, dp: int, **fields: Any) -> str:
        training = {"global_batch": 8, "micro_batch": 1, "sequence": 16, "steps": 10}
        workload = {"kind": "builtin", "data": {"train": ["/data/*.txt"]}}
        spec = parse_spec({"name": name, "workload": workload, "training": training, "layout": {"dp": dp}, **fields})
        new = NewJob(f"j-{name}", spec, "file:///s")
        return (await self.store.submissions.submit(new, now=time.time(), author=Author("test"))).id

    async def until(self, job_id: str, state: JobState, reason: str = "") -> JobRow:
        """Wait until the job is in the state, with the reason if one is given, and return the job."""
        async with asyncio.timeout(10):
            while True:
                mark = self.store.changes.mark()
                job = await self.store.job(job_id)
                reasons = [job.reason, *(each.reason for each in job.conditions)]
                if job.state is state and (not reason or reason in reasons):
                    return job
                await self.store.changes.wait(job_id, mark, 0.2)

    async def start_training(self, job_id: str) -> FakeSupervisor:
        """Let the job train, and return its supervisor."""
        await self.until(job_id, JobState.STARTING)
        supervisor = self.cluster.supervisors[supervisor_name(job_id)]
        await supervisor.state("RUNNING", "first_step")
        await self.until(job_id, JobState.RUNNING)
        return supervisor


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncGenerator[QueueSetup]:
    settings = Settings(state_dir=tmp_path, sync_wait_s=5, min_run_s=0)
    store = await open_store(settings.database_url)
    cluster = FakeCluster([NODE])
    controller = asyncio.create_task(Controller(store, cluster, settings).run())
    yield QueueSetup(store, cluster)
    controller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await controller
    await store.close()


async def test_a_preempted_job_queues_and_starts_again_after_the_higher_one(setup: QueueSetup) -> None:
    low = await setup.submit("low", 4, priority="low")
    supervisor = await setup.start_training(low)
    high = await setup.submit("high", 2, priority="high")
    change = await asyncio.wait_for(supervisor.wait_for_intent("change"), 5)
    assert change["is_requeue"] and change["reason"] == "preempted" and change["leaving"] == {}
    assert change["why"] == "preempted by job 'high', priority high"
    waiting = await setup.until(high, JobState.QUEUED, "preemption")
    assert [each.type for each in waiting.conditions] == ["Placeable", "StartEstimated"]

    await supervisor.state("QUEUED", "preempted")
    preempted = await setup.until(low, JobState.QUEUED, "resources")
    assert preempted.reason == Reason.PREEMPTED and "preempt" not in preempted.intents
    first = await setup.start_training(high)
    await first.state("SUCCEEDED", "completed")
    await setup.until(low, JobState.STARTING)


async def test_a_job_that_cannot_be_preempted_runs_to_its_end(setup: QueueSetup) -> None:
    firm = await setup.submit("firm", 4, priority="low", preemptibility="none")
    supervisor = await setup.start_training(firm)
    await setup.until(await setup.submit("high", 2, priority="critical"), JobState.QUEUED, "resources")
    await supervisor.state("SUCCEEDED", "completed")
    await setup.until("j-high", JobState.STARTING)


async def test_a_changed_limit_applies_from_the_next_pass(setup: QueueSetup) -> None:
    await setup.store.queue.put_project(ProjectRow("small", limit=2))
    first, second = [await setup.submit(name, 2, project="small") for name in ("one", "two")]
    await setup.start_training(first)
    waiting = await setup.until(second, JobState.QUEUED, "project_limit")
    assert waiting.conditions[0].message == "needs 2 devices; project 'small' uses 2 of at most 2"
    text = (await Metrics(setup.store, QuarantinePolicy(3600.0, 600.0)).render()).decode()
    assert 'regroup_queue_jobs{project="small",reason="project_limit"} 1.0' in text
    assert 'regroup_project_devices{project="small",what="limit"} 2.0' in text
    await setup.store.queue.put_project(ProjectRow("small", limit=4))
    await setup.start_training(second)


async def test_a_job_waits_for_its_dependency_and_fails_with_it(setup: QueueSetup) -> None:
    first = await setup.submit("first", 1)
    then, never = (
        await setup.submit("then", 1, depends_on=[first]),
        await setup.submit("never", 1, depends_on=["j-then"]),
    )
    supervisor = await setup.start_training(first)
    waiting = await setup.until(then, JobState.QUEUED, "dependency")
    assert waiting.conditions[0].message == "depends on first, which has not succeeded yet"
    await supervisor.state("SUCCEEDED", "completed")
    failing = await setup.start_training(then)
    await failing.state("FAILED", "user_error")
    ended = await setup.until(never, JobState.FAILED)
    assert ended.reason == Reason.DEPENDENCY_FAILED and "'then' (j-then)" in ended.message


async def test_jobs_are_placed_by_the_measurements_of_a_probe(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, sync_wait_s=5)
    store = await open_store(settings.database_url)
    lease = await store.acquire_lease("test", 60.0)
    assert lease is not None
    probe = {
        "name": "probe", "labels": {LABEL: "cpu"}, "workload": {"kind": "function", "function": FUNCTION},
        "training": {"global_batch": 4, "micro_batch": 1, "steps": 6}, "layout": {"dp": 4},
    }  # fmt: skip
    await store.submissions.submit(NewJob("j-probe", parse_spec(probe), "file:///s"), now=1.0, author=Author("test"))
    await end(
        store, lease, "j-probe", probe_result(2, links={(0, 1): (1e3, 1.0)}, fabric="f.1"), ["local-1", "local-2"]
    )
    await store.release_lease(lease)
    racks = [{DEFAULT_LABELS[Level.RACK]: f"rack-{number}"} for number in (1, 2)]
    other = replace(NODE, id="2" * 40, name="local-2", address="10.0.0.2", labels=racks[1])
    cluster = FakeCluster([replace(NODE, labels=racks[0]), other])
    controller = asyncio.create_task(Controller(store, cluster, settings).run())
    setup = QueueSetup(store, cluster)
    await setup.until(await setup.submit("wide", 8), JobState.STARTING)
    rows = await store.live_allocations("j-wide")
    (choice,) = [row.data["choice"] for row in rows if row.kind == "supervisor"]
    assert choice["communication_s"] > 1.0, "a message takes a second"
    assert {row.data["domain"][-1] for row in rows if row.kind == "reservation"} == {"f.1"}
    controller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await controller
    await store.close()


async def test_a_job_that_waits_for_a_lost_node_names_it(setup: QueueSetup) -> None:
    setup.cluster.lost = ["local-2"]
    waiting = await setup.until(await setup.submit("large", 8), JobState.QUEUED, "too_large")
    assert waiting.conditions[0].message.endswith("; local-2 is lost: the server starts it again")
    setup.cluster.lost = []
    async with asyncio.timeout(10):
        while "is lost" in (await setup.store.job(waiting.id)).conditions[0].message:
            await setup.store.changes.wait(waiting.id, setup.store.changes.mark(), 0.2)
