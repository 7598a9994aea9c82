"""The tasks of live jobs: thousands start with few statements, and the lease is renewed in between."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from regroup.service.controller.controller import Controller
from regroup.service.controller.job_tasks import JobTasks
from regroup.service.domain.author import Author
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.ports.cluster import supervisor_name
from regroup.service.settings import Settings
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.records import Allocation, AllocationKind, Lease, NewJob
from regroup.service.store.store import Store
from tests.support.doubles.fake_cluster import FakeCluster
from tests.support.doubles.leader_context import leader_context
from tests.support.servers.statements import recorded_statements
from tests.support.servers.stores import open_store


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    is_file = request.param == "sqlite"
    server = None if is_file else request.getfixturevalue("postgres_server")
    opened = await open_store(f"sqlite:///{tmp_path}/regroup.db" if server is None else server.create_database())
    yield opened
    await opened.close()


_numbers = itertools.count(1)


async def start_jobs(store: Store, lease: Lease, count: int) -> list[str]:
    """Store jobs that start on a node each."""
    found = list[str]()
    for number in itertools.islice(_numbers, count):
        training = {"global_batch": 1, "micro_batch": 1, "sequence": 8, "steps": 10}
        workload = {"kind": "builtin", "data": {"train": ["/data/*.txt"]}}
        spec = parse_spec({"name": f"job-{number}", "workload": workload, "training": training})
        new = NewJob(f"job_{number:04}", spec, "file:///s")
        job_id = (await store.submissions.submit(new, now=time.time(), author=Author("test"))).id
        row = Allocation(job_id, AllocationKind.SUPERVISOR, supervisor_name(job_id), data={"layout": {}, "attempt": 0})
        placed = check_transition(job_id, JobState.QUEUED, JobState.PLACING, Reason.PLACED)
        await store.apply(lease, placed, now=time.time(), allocate=[row])
        starting = check_transition(job_id, JobState.PLACING, JobState.STARTING, Reason.RESERVED)
        await store.apply(lease, starting, now=time.time())
        found.append(job_id)
    return found


class PatientCluster(FakeCluster):
    """A cluster whose supervisors have nothing to report."""

    def __init__(self, expected: int) -> None:
        super().__init__()
        self.expected, self.all_synced = expected, asyncio.Event()
        self.synced: list[str] = []
        self.failing = ""
        """Job whose syncs raise an unexpected error."""

    async def sync(self, job_id: str, request: object) -> object:
        if job_id == self.failing:
            raise RuntimeError("no such cluster")
        self.synced.append(job_id)
        if len(self.synced) == self.expected:
            self.all_synced.set()
        await asyncio.sleep(3600)
        raise AssertionError("the test has ended")


async def test_many_jobs_are_followed_after_few_statements(store: Store) -> None:
    lease = await store.acquire_lease("one", 60.0)
    assert lease is not None
    job_ids = await start_jobs(store, lease, 150)
    cluster, jobs = PatientCluster(len(job_ids)), JobTasks()
    leader = leader_context(store, lease, cluster)
    store.live.drop_all_allocations()
    with recorded_statements(store) as statements, contextlib.suppress(TimeoutError):
        async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as tasks:
            await jobs.start_all(leader, tasks, job_ids)
            await cluster.all_synced.wait()
            assert jobs.job_ids == set(job_ids)
            await jobs.start_all(leader, tasks, job_ids)  # a second pass starts nothing
            limit.reschedule(0)
    assert sorted(cluster.synced) == job_ids
    assert len(statements) == 7, "one for all allocations, and three for each hundred of jobs"
    assert not jobs.job_ids


async def test_a_job_that_failed_is_reconciled_again_by_the_next_pass(store: Store) -> None:
    lease = await store.acquire_lease("one", 60.0)
    assert lease is not None
    failing, other = await start_jobs(store, lease, 2)
    cluster, jobs = PatientCluster(2), JobTasks()
    cluster.failing = failing
    leader = leader_context(store, lease, cluster)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as tasks:
            await jobs.start_all(leader, tasks, [failing, other])
            mark = store.changes.mark()
            while failing in jobs.job_ids:
                await store.changes.wait(failing, mark, 5.0)
                mark = store.changes.mark()
            assert jobs.job_ids == {other}, "a fault of one job does not affect the others"
            fault = (await store.job(failing)).platform_fault
            assert fault is not None and "no such cluster" in fault.message
            cluster.failing = ""
            await jobs.start_all(leader, tasks, [failing, other])
            await cluster.all_synced.wait()
            limit.reschedule(0)
    assert sorted(cluster.synced) == sorted([failing, other]), "one task for each job"


async def test_a_pass_over_unchanged_jobs_costs_the_same_for_many(store: Store, tmp_path: Path) -> None:
    lease = await store.acquire_lease("one", 60.0)
    assert lease is not None
    counts = list[int]()
    for count in (1, 31):
        await start_jobs(store, lease, count - len(counts))
        cluster = PatientCluster(count)
        controller = Controller(store, cluster, Settings(state_dir=tmp_path))
        leader = leader_context(store, lease, cluster)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as tasks:
                await controller._run_pass(leader, tasks)
                await cluster.all_synced.wait()
                with recorded_statements(store) as statements:
                    await controller._run_pass(leader, tasks)
                limit.reschedule(0)
        counts.append(len(statements))
    assert counts[0] == counts[1] > 0
