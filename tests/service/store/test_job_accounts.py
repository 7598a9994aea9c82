"""Accounts of jobs between scrapes: the sums are those of a server that has just started."""

from typing import Any

from sqlalchemy import event

from regroup.service.domain.author import Author
from regroup.service.domain.states import JobState, Reason
from regroup.service.observability.job_accounts import JobAccounts
from regroup.service.store.rows.records import Lease
from regroup.service.store.store import Store

ANA = Author("ana")


async def scrape(store: Store, accounts: JobAccounts, now: float) -> dict[Any, float]:
    totals = await store.totals.read(now, accounts.jobs)
    await accounts.catch_up(totals.uncounted)
    return dict(accounts.sums(now))


async def test_retained_accounts_have_the_sums_of_new_ones(store: Store, lease: Lease, queue, walk, make_emitter):
    accounts = JobAccounts(store)
    waiting, running = await queue("waiting"), await queue("running")
    other = await queue("suspended")
    first, second = make_emitter(), make_emitter()

    async def check(now: float) -> dict[Any, float]:
        found = await scrape(store, accounts, now)
        assert found == await scrape(store, JobAccounts(store), now)
        return found

    await check(200.0)
    await walk(running, first)
    await walk(other, second)
    before = await check(2000.0)
    assert await check(3000.0) != before, "a running job holds devices"
    await store.queue.suspend(other, "test", now=3500.0, author=ANA)
    await store.ingest(lease, other, second.boot_id, [second.state(JobState.QUEUED, Reason.PREEMPTED)], {})
    assert (await store.job(other)).state is JobState.SUSPENDED
    await check(4000.0)
    await store.ingest(lease, running, first.boot_id, [first.state(JobState.SUCCEEDED, Reason.COMPLETED)], {})
    await store.cancel(waiting, now=4500.0, author=ANA)
    assert await check(5000.0) == await check(6000.0), "no job holds devices any more"


async def test_a_scrape_reads_only_jobs_that_changed(store: Store, queue, walk, emitter):
    job_ids = [await queue(f"job-{number}") for number in range(20)]
    accounts, statements = JobAccounts(store), list[str]()
    for engine in {store._database._reader.sync_engine, store._database._writer.sync_engine}:
        event.listen(engine, "before_cursor_execute", lambda *args: statements.append(str(args[2])))

    async def scraped() -> int:
        """Scrape; return the number of statements that read rows or events of jobs."""
        statements.clear()
        await scrape(store, accounts, 100.0)
        return sum("jobs.spec" in each or "FROM events" in each for each in statements)

    assert await scraped() == 2, "the rows of all jobs, and the events of all jobs"
    assert await scraped() == 0
    await walk(job_ids[7], emitter)
    assert await scraped() == 2, "the row of one job, and its events"
    assert accounts.jobs[job_ids[7]].state is JobState.RUNNING
