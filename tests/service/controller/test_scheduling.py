"""The queue as the controller acts on it: room is made, quotas are kept, jobs come after others."""

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regroup.service.cluster_state.probe_results import FUNCTION, LABEL
from regroup.service.controller.controller import Controller
from regroup.service.domain.states import JobState, Reason
from regroup.service.domain.topology import DEFAULT_LABELS, Level
from regroup.service.observability.prometheus import Metrics
from regroup.service.policy.detection.node_quarantine import QuarantinePolicy
from regroup.service.ports.cluster import Node, supervisor_name
from regroup.service.settings import Settings
from regroup.service.spec.job import parse_spec
from regroup.service.store.records import JobRow, NewJob, ProjectRow
from regroup.service.store.store import Store
from tests.support.doubles.fake_cluster import FakeCluster, FakeSupervisor
from tests.support.inputs.probe_output import end, probe_result

NODE = Node(id="1" * 40, name="local-1", address="10.0.0.1", cpus=4, free_cpus=4)


class House:
    """A controller over a cluster in memory and a real store."""

    def __init__(self, store: Store, cluster: FakeCluster) -> None:
        self.store, self.cluster = store, cluster

    async def submit(self, name: str, dp: int, **fields: Any) -> str:
        training = {"global_batch": 8, "micro_batch": 1, "sequence": 16, "steps": 10}
        workload = {"kind": "builtin", "data": {"train": ["/data/*.txt"]}}
        spec = parse_spec({"name": name, "workload": workload, "training": training, "layout": {"dp": dp}, **fields})
        return (await self.store.submit(NewJob(f"j-{name}", spec, "file:///s"), now=time.time(), actor="test")).id

    async def until(self, job_id: str, state: JobState, reason: str = "") -> JobRow:
        """The job, once it is in that state, and says why where `reason` is given."""
        async with asyncio.timeout(10):
            while True:
                mark = self.store.changes.mark()
                job = await self.store.job(job_id)
                said = [job.reason, *(each.reason for each in job.conditions)]
                if job.state is state and (not reason or reason in said):
                    return job
                await self.store.changes.wait(job_id, mark, 0.2)

    async def runs(self, job_id: str) -> FakeSupervisor:
        """The job's supervisor, once the job trains."""
        await self.until(job_id, JobState.STARTING)
        supervisor = self.cluster.supervisors[supervisor_name(job_id)]
        await supervisor.state("RUNNING", "first_step")
        await self.until(job_id, JobState.RUNNING)
        return supervisor


@pytest.fixture
async def house(tmp_path: Path) -> AsyncGenerator[House]:
    settings = Settings(state_dir=tmp_path, sync_wait_s=5, min_run_s=0)
    store = await Store.open(settings.database_url)
    cluster = FakeCluster([NODE])
    controlling = asyncio.create_task(Controller(store, cluster, settings).run())
    yield House(store, cluster)
    controlling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await controlling
    await store.close()


async def test_a_lower_job_is_suspended_for_a_higher_one_and_comes_back(house: House) -> None:
    low = await house.submit("low", 4, priority="low")
    supervisor = await house.runs(low)
    high = await house.submit("high", 2, priority="high")
    told = await asyncio.wait_for(supervisor.wait_for_intent("change"), 5)
    assert told["is_requeue"] and told["reason"] == "preempted" and told["leaving"] == {}
    assert told["why"] == "preempted by job 'high' of project 'default', priority high"
    waiting = await house.until(high, JobState.QUEUED, "preemption")
    assert [each.type for each in waiting.conditions] == ["Placeable", "StartEstimated"]

    await supervisor.state("QUEUED", "preempted")
    suspended = await house.until(low, JobState.QUEUED, "resources")
    assert suspended.reason == Reason.PREEMPTED and "preempt" not in suspended.intents
    first = await house.runs(high)
    await first.state("SUCCEEDED", "completed")
    await house.until(low, JobState.STARTING)


async def test_who_keeps_what_it_has_is_waited_for(house: House) -> None:
    firm = await house.submit("firm", 4, priority="low", preemptibility="none")
    supervisor = await house.runs(firm)
    await house.until(await house.submit("high", 2, priority="critical"), JobState.QUEUED, "resources")
    await supervisor.state("SUCCEEDED", "completed")
    await house.until("j-high", JobState.STARTING)


async def test_a_limit_holds_from_the_next_turn_on(house: House) -> None:
    await house.store.queue.put_project(ProjectRow("small", limit=2))
    first, second = [await house.submit(name, 2, project="small") for name in ("one", "two")]
    await house.runs(first)
    held = await house.until(second, JobState.QUEUED, "project_limit")
    assert held.conditions[0].message == "needs 2 devices; project 'small' uses 2 of at most 2"
    text = (await Metrics(house.store, QuarantinePolicy(3600.0, 600.0)).render()).decode()
    assert 'regroup_queue_jobs{project="small",reason="project_limit"} 1.0' in text
    assert 'regroup_project_devices{project="small",what="limit"} 2.0' in text
    await house.store.queue.put_project(ProjectRow("small", limit=4))
    await house.runs(second)


async def test_a_job_comes_after_others_and_ends_with_one_that_fails(house: House) -> None:
    first = await house.submit("first", 1)
    then, never = (
        await house.submit("then", 1, depends_on=[first]),
        await house.submit("never", 1, depends_on=["j-then"]),
    )
    supervisor = await house.runs(first)
    waiting = await house.until(then, JobState.QUEUED, "dependency")
    assert waiting.conditions[0].message == "depends on first, which has not succeeded yet"
    await supervisor.state("SUCCEEDED", "completed")
    failing = await house.runs(then)
    await failing.state("FAILED", "user_error")
    ended = await house.until(never, JobState.FAILED)
    assert ended.reason == Reason.DEPENDENCY_FAILED and "'then' (j-then)" in ended.message


async def test_jobs_are_placed_by_what_a_probe_has_measured(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, sync_wait_s=5)
    store = await Store.open(settings.database_url)
    lease = await store.acquire_lease("test", 60.0)
    assert lease is not None
    probe = {
        "name": "probe", "labels": {LABEL: "cpu"}, "workload": {"kind": "function", "function": FUNCTION},
        "training": {"global_batch": 4, "micro_batch": 1, "steps": 6}, "layout": {"dp": 4},
    }  # fmt: skip
    await store.submit(NewJob("j-probe", parse_spec(probe), "file:///s"), now=1.0, actor="test")
    await end(
        store, lease, "j-probe", probe_result(2, links={(0, 1): (1e3, 1.0)}, fabric="f.1"), ["local-1", "local-2"]
    )
    await store.release_lease(lease)
    racks = [{DEFAULT_LABELS[Level.RACK]: f"rack-{number}"} for number in (1, 2)]
    other = replace(NODE, id="2" * 40, name="local-2", address="10.0.0.2", labels=racks[1])
    cluster = FakeCluster([replace(NODE, labels=racks[0]), other])
    controlling = asyncio.create_task(Controller(store, cluster, settings).run())
    house = House(store, cluster)
    await house.until(await house.submit("wide", 8), JobState.STARTING)
    rows = await store.live_allocations("j-wide")
    (choice,) = [row.data["choice"] for row in rows if row.kind == "supervisor"]
    assert choice["communication_s"] > 1.0, "a message takes a second"
    assert {row.data["domain"][-1] for row in rows if row.kind == "reservation"} == {"f.1"}
    controlling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await controlling
    await store.close()
