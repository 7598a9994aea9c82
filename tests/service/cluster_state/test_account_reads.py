"""Accounts of many jobs are read together."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from regroup.service.cluster_state.account_reads import AccountReader, catch_up_all
from regroup.service.cluster_state.job_account import JobAccount
from regroup.service.domain.author import Author
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.records import JobRow, Lease, NewJob
from regroup.service.store.store import Store
from tests.support.servers.statements import recorded_statements
from tests.support.servers.stores import open_store


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    is_file = request.param == "sqlite"
    server = None if is_file else request.getfixturevalue("postgres_server")
    opened = await open_store(f"sqlite:///{tmp_path}/regroup.db" if server is None else server.create_database())
    yield opened
    await opened.close()


async def placed_jobs(store: Store, lease: Lease, count: int) -> list[JobRow]:
    """Return jobs with two events each."""
    found = list[JobRow]()
    for number in range(count):
        training = {"global_batch": 1, "micro_batch": 1, "sequence": 8, "steps": 10}
        workload = {"kind": "builtin", "data": {"train": ["/data/*.txt"]}}
        spec = parse_spec({"name": f"job-{number}", "workload": workload, "training": training})
        new = NewJob(f"job_{number:04}", spec, "file:///s")
        job_id = (await store.submissions.submit(new, now=time.time(), author=Author("test"))).id
        placed = check_transition(job_id, JobState.QUEUED, JobState.PLACING, Reason.PLACED)
        found.append(await store.apply(lease, placed, now=time.time()))
    return found


async def test_accounts_read_together_are_those_read_one_by_one(store: Store) -> None:
    lease = await store.acquire_lease("one", 60.0)
    assert lease is not None
    jobs = await placed_jobs(store, lease, 20)
    together, alone = [JobAccount(job) for job in jobs], [JobAccount(job) for job in jobs]
    with recorded_statements(store) as statements:
        await catch_up_all(store, list(zip(together, jobs, strict=True)))
    assert len(statements) == 1, "no job has a generation, so only the events are read"
    for account, job in zip(alone, jobs, strict=True):
        await account.catch_up(store, job)
    assert together == alone and [len(each.timeline) for each in together] == [2] * 20
    starting = check_transition(jobs[0].id, JobState.PLACING, JobState.STARTING, Reason.RESERVED)
    jobs[0] = await store.apply(lease, starting, now=time.time())
    with recorded_statements(store) as statements:
        await catch_up_all(store, list(zip(together, jobs, strict=True)))
    assert len(statements) == 1 and together[0].timeline[-1].state is JobState.STARTING


async def test_jobs_that_may_wait_are_read_together(store: Store) -> None:
    lease = await store.acquire_lease("one", 60.0)
    assert lease is not None
    jobs = await placed_jobs(store, lease, 10)
    accounts, reader = [JobAccount(job) for job in jobs], AccountReader(store)
    with recorded_statements(store) as statements:
        held = asyncio.gather(
            *(reader.catch_up(each, job, 60.0) for each, job in zip(accounts[1:], jobs[1:], strict=True))
        )
        await asyncio.sleep(0)
        await reader.catch_up(accounts[0], jobs[0], 0.0)
        await held
    assert len(statements) == 1 and all(each.number == job.version for each, job in zip(accounts, jobs, strict=True))
