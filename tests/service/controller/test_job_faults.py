"""Faults while one job is handled: a condition of that job, and all other jobs run."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from regroup.service.cluster_state.queue_positions import QueuePositions
from regroup.service.controller import controller as controller_module
from regroup.service.controller import scheduling
from regroup.service.controller.controller import Controller
from regroup.service.controller.job_requests import JobRequestReconciler
from regroup.service.controller.predictions import PredictionReconciler
from regroup.service.domain.author import Author
from regroup.service.domain.errors import UnavailableError
from regroup.service.domain.states import JobState
from regroup.service.observability.prometheus import Metrics
from regroup.service.policy.detection.node_quarantine import QuarantinePolicy
from regroup.service.policy.scheduling.decide import DecisionFault
from regroup.service.policy.scheduling.entries import WaitingJob
from regroup.service.ports.cluster import Node, supervisor_name
from regroup.service.settings import Settings
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.records import PLATFORM_FAULT, JobRow, NewJob
from regroup.service.store.store import Store
from regroup.service.tasks.server_tasks import ServerTasks
from tests.support.doubles.fake_cluster import FakeCluster
from tests.support.servers.stores import open_store

NODES = [Node(id=f"{n}" * 40, name=f"local-{n}", address="10.0.0.1", cpus=3.0, free_cpus=3.0) for n in (1, 2)]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    opened = await open_store(f"sqlite:///{tmp_path}/regroup.db")
    yield opened
    await opened.close()


@asynccontextmanager
async def controlled(store: Store, cluster: FakeCluster, tmp_path: Path) -> AsyncGenerator[Controller]:
    settings = Settings(state_dir=tmp_path, gang_timeout_s=1, supervisor_silence_s=0.2, sync_wait_s=1, lease_s=1.5)
    controller = Controller(store, cluster, settings)
    task = asyncio.create_task(controller.run())
    yield controller
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def submit(store: Store, name: str, dp: int = 1, **changes: Any) -> str:
    training = {"global_batch": 8, "micro_batch": 1, "sequence": 16, "steps": 10}
    workload = {"kind": "builtin", "data": {"train": ["/data/*.txt"]}}
    spec = parse_spec({"name": name, "workload": workload, "training": training, "layout": {"dp": dp}})
    await store.submissions.submit(
        NewJob(f"j-{name}", spec, f"file:///s/jobs/j-{name}"), now=time.time(), author=Author("test")
    )
    if changes:  # as an older server may have stored it
        stored = json.dumps({**spec.model_dump(mode="json"), **changes})
        async with store._database.write() as connection:
            statement = sa.text("UPDATE jobs SET spec = :spec WHERE id = :id")
            await connection.execute(statement, {"spec": stored, "id": f"j-{name}"})
    return f"j-{name}"


async def until(store: Store, job_id: str, is_expected: Callable[[JobRow], bool]) -> JobRow:
    async with asyncio.timeout(20):
        while True:
            job = await store.job(job_id)
            if is_expected(job):
                return job
            await asyncio.sleep(0.02)


async def eventually(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while True:
            if is_true():
                return
            await asyncio.sleep(0.02)


ABSURD = {
    "a number that no float holds": {"resources": {"device": "cpu", "cpus": 10**309}},
    "a spec without fields": {"layout": 7, "workload": None},
    "a time that is text": {"max_queue_time": "soon"},
    "a dependency that is unknown": {"depends_on": ["j-never"]},
}


@pytest.mark.parametrize("changes", ABSURD.values(), ids=list(ABSURD))
async def test_a_job_that_cannot_be_scheduled_affects_no_other(
    store: Store, tmp_path: Path, changes: dict[str, Any]
) -> None:
    cluster = FakeCluster(NODES)
    absurd = await submit(store, "absurd", **changes)
    sound = await submit(store, "sound")
    later = await submit(store, "later", dp=8)
    async with controlled(store, cluster, tmp_path) as controller:
        await until(store, sound, lambda job: job.state is JobState.STARTING)
        waiting = await until(store, later, lambda job: bool(job.conditions))
        assert waiting.conditions[0].reason == "too_large"
        job = await until(store, absurd, lambda job: job.platform_fault is not None)
        assert job.platform_fault and job.platform_fault.status and job.state is JobState.QUEUED
        assert "other jobs are not affected" in job.platform_fault.message
        await eventually(lambda: controller.passes.completed_at_s is not None)
        assert controller.passes.job_faults > 0 and controller.passes.failed["fault"] == 0
        assert await controller.check() == "leads" and "s ago" in await controller.check_passes()
        positions = QueuePositions(store, time.time, 3600.0)
        assert await positions.jobs_ahead(await store.job(later)) is not None
        text = (await Metrics(store, QuarantinePolicy(3600.0, 600.0)).render()).decode()
        assert "regroup_jobs_with_platform_fault 1.0" in text
        cancelled = await store.cancel(absurd, now=time.time(), author=Author("user"))
        assert cancelled.state is JobState.CANCELLED


async def test_a_damaged_record_is_not_scheduled_and_affects_no_other(store: Store, tmp_path: Path) -> None:
    broken = await submit(store, "broken")
    async with store._database.write() as connection:
        await connection.execute(sa.text("UPDATE jobs SET spec = '{ torn' WHERE id = 'j-broken'"))
    sound = await submit(store, "sound")
    async with controlled(store, FakeCluster(NODES), tmp_path):
        await until(store, sound, lambda job: job.state is JobState.STARTING)
        job = await store.job(broken)
        assert job.state is JobState.QUEUED and job.platform_fault and job.platform_fault.reason == "corrupt_record"


async def test_a_damaged_reservation_closes_its_node_and_no_other(store: Store, tmp_path: Path) -> None:
    cluster = FakeCluster(NODES)
    async with controlled(store, cluster, tmp_path):
        first = await submit(store, "first", dp=2)
        await until(store, first, lambda job: job.state is JobState.STARTING)
        async with store._database.write() as connection:
            await connection.execute(sa.text("UPDATE allocations SET data = 'torn' WHERE kind = 'reservation'"))
        second = await submit(store, "second", dp=3)
        await until(store, second, lambda job: job.state is JobState.STARTING)
    assert await store.live_allocations(second)


async def test_a_fault_of_the_decision_about_a_job_is_temporary(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide, is_broken = scheduling.decide, True

    def decide_wrongly(queue: Sequence[WaitingJob], *args: Any, **options: Any) -> Any:
        if not is_broken:
            return decide(queue, *args, **options)
        others = [job for job in queue if job.name != "unlucky"]
        return [DecisionFault("j-unlucky", RuntimeError("internal")), *decide(others, *args, **options)]

    monkeypatch.setattr(scheduling, "decide", decide_wrongly)
    unlucky, lucky = await submit(store, "unlucky"), await submit(store, "lucky")
    async with controlled(store, FakeCluster(NODES), tmp_path):
        await until(store, lucky, lambda job: job.state is JobState.STARTING)
        await until(store, unlucky, lambda job: job.platform_fault is not None)
        is_broken = False
        started = await until(store, unlucky, lambda job: job.state is JobState.STARTING)
        assert started.platform_fault is None


async def test_a_failed_pass_is_counted_and_passes_continue(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, is_broken = FakeCluster(NODES), True

    async def decide_nothing(*_: Any) -> Any:
        if is_broken:
            raise OverflowError("int too large to convert to float")
        return []

    monkeypatch.setattr(controller_module.Scheduler, "decide", decide_nothing)
    running = await submit(store, "running")
    async with controlled(store, cluster, tmp_path) as controller:
        await eventually(lambda: controller.passes.failed["fault"] >= 2)
        with pytest.raises(UnavailableError, match="OverflowError: int too large"):
            await controller.check()
        tasks = ServerTasks(controller.passes)
        text = (await Metrics(store, QuarantinePolicy(3600.0, 600.0), tasks=tasks).render()).decode()
        assert 'regroup_controller_passes_failed_total{cause="fault"}' in text
        is_broken = False
        await eventually(lambda: controller.passes.completed_at_s is not None)
        assert await controller.check() == "leads" and (await store.job(running)).state is JobState.QUEUED


async def test_a_cancellation_reaches_the_supervisor_although_another_aspect_fails(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("broken aspect")

    async def fail_later(*_: Any) -> None:
        fail()

    monkeypatch.setattr(PredictionReconciler, "intents", fail)
    monkeypatch.setattr(PredictionReconciler, "reconcile", fail_later)
    monkeypatch.setattr(PredictionReconciler, "concerns", fail)
    cluster = FakeCluster(NODES)
    async with controlled(store, cluster, tmp_path):
        job_id = await submit(store, "gpt")
        await until(store, job_id, lambda job: job.state is JobState.STARTING)
        supervisor = cluster.supervisors[supervisor_name(job_id)]
        job = await until(store, job_id, lambda job: job.platform_fault is not None)
        assert job.platform_fault and "PredictionReconciler" in job.platform_fault.message
        await store.cancel(job_id, now=time.time(), author=Author("user"))
        assert await asyncio.wait_for(supervisor.wait_for_intent("cancel"), 10) is True
        await supervisor.state("RUNNING", "first_step")
        await until(store, job_id, lambda job: job.state is JobState.RUNNING)
    assert JobRequestReconciler.intents is not PredictionReconciler.intents


def test_the_condition_is_part_of_the_api() -> None:
    assert PLATFORM_FAULT == "PlatformFault"
