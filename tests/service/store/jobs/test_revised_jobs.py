"""Jobs of which only those are read again that have changed."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from regroup.service.domain.author import Author
from regroup.service.domain.states import JobState
from regroup.service.store.jobs.revised_jobs import RevisedJobs
from regroup.service.store.rows.job_rows import job_row
from regroup.service.store.rows.records import Condition, Lease
from regroup.service.store.schema.tables import jobs
from regroup.service.store.store import Store


async def test_only_changed_jobs_are_converted_again(store: Store, lease: Lease, queue: Any) -> None:
    converted = list[str]()

    def convert(row: Any) -> tuple[str, int]:
        converted.append(row["id"])
        return row["id"], len(row["conditions"])

    queued = RevisedJobs(store._database, jobs.c.state == JobState.QUEUED, (jobs.c.id, jobs.c.conditions), convert)
    assert await queued.read() == ()
    ids = [await queue(name) for name in ("one", "two", "three")]
    assert await queued.read() == tuple((job_id, 0) for job_id in sorted(ids))
    converted.clear()
    assert len(await queued.read()) == 3 and converted == []
    await store.set_conditions(lease, ids[1], [Condition("Placeable", False, "resources", "no", 0.0)], now=1.0)
    assert dict(await queued.read())[ids[1]] == 1 and converted == [ids[1]]
    await store.cancel(ids[0], now=1.0, author=Author("ana"))
    assert sorted(dict(await queued.read())) == sorted(ids[1:]) and converted == [ids[1]]


async def test_a_read_without_a_change_is_one_short_statement_and_returns_the_same_object(
    store: Store, queue: Any
) -> None:
    statements = list[str]()
    event.listen(store._database._reader.sync_engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    for number in range(30):
        await queue(f"job-{number}")
    queued = store.queue.observe(job_row)
    found = await queued.read()
    statements.clear()
    assert await queued.read() is found
    selects = [each for each in statements if each.startswith("SELECT") and "jobs" in each]
    assert len(selects) == 1 and "spec" not in selects[0]
    await queue("one-more")
    statements.clear()
    assert len(await queued.read()) == 31
    assert len([each for each in statements if each.startswith("SELECT") and "jobs" in each]) == 2


async def test_the_queue_is_that_of_the_database(store: Store, queue: Any) -> None:
    for name in ("one", "two"):
        await queue(name)
    found = await store.queue.observe(job_row).read()
    assert {each.id: each for each in found} == {each.id: each for each in await store.queued_jobs()}
    async with store._database.read() as connection:
        projects = (await connection.execute(sa.select(jobs.c.project).distinct())).scalars().all()
    assert await store.queue.count_jobs() == {projects[0]: 2}


async def test_jobs_are_sorted_by_their_ids_whatever_their_revisions_are(store: Store, queue: Any) -> None:
    await queue("one")
    async with store._database.write() as connection:
        row = (await connection.execute(sa.select(jobs))).mappings().one()
        for job_id, revision in (("a", 10), ("a1", 9), ("a10", 1), ("a2", 100)):
            values = {**row, "id": job_id, "name": job_id, "revision": revision}
            await connection.execute(jobs.insert().values(**values))
    found = await store.queue.observe(lambda each: each["id"]).read()
    assert found == ("a", "a1", "a10", "a2", row["id"])
