"""Jobs of which only those are read again that have changed."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from regroup.service.domain.author import Author
from regroup.service.domain.states import JobState
from regroup.service.store.jobs.revised_jobs import RevisedJobs
from regroup.service.store.rows.records import Condition, Lease
from regroup.service.store.schema.tables import jobs
from regroup.service.store.store import Store


async def test_only_changed_jobs_are_converted_again(store: Store, lease: Lease, queue: Any) -> None:
    converted = list[str]()

    def convert(row: Any) -> tuple[str, int]:
        converted.append(row["id"])
        return row["id"], len(row["conditions"])

    queued = RevisedJobs(store._database, jobs.c.state == JobState.QUEUED, (jobs.c.id, jobs.c.conditions), convert)
    assert await queued.read() == []
    ids = [await queue(name) for name in ("one", "two", "three")]
    assert await queued.read() == [(job_id, 0) for job_id in sorted(ids)]
    converted.clear()
    assert len(await queued.read()) == 3 and converted == []
    await store.set_conditions(lease, ids[1], [Condition("Placeable", False, "resources", "no", 0.0)], now=1.0)
    assert dict(await queued.read())[ids[1]] == 1 and converted == [ids[1]]
    await store.cancel(ids[0], now=1.0, author=Author("ana"))
    assert sorted(dict(await queued.read())) == sorted(ids[1:]) and converted == [ids[1]]


async def test_the_cost_of_a_read_does_not_grow_with_the_queue(store: Store, queue: Any) -> None:
    statements = list[str]()
    event.listen(store._database._reader.sync_engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    for number in range(30):
        await queue(f"job-{number}")
    await store.queue.jobs()
    statements.clear()
    await store.queue.jobs()
    selects = [each for each in statements if each.startswith("SELECT") and "jobs" in each]
    assert len(selects) == 1 and "spec" not in selects[0]


async def test_the_queue_is_that_of_the_database(store: Store, queue: Any) -> None:
    for name in ("one", "two"):
        await queue(name)
    assert {each.id: each for each in await store.queue.jobs()} == {each.id: each for each in await store.queued_jobs()}
    async with store._database.read() as connection:
        projects = (await connection.execute(sa.select(jobs.c.project).distinct())).scalars().all()
    assert await store.queue.count_jobs() == {projects[0]: 2}
