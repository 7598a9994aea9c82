"""The outbox: events of jobs become deliveries in their own transaction, on SQLite and on a real PostgreSQL."""

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from regroup.service.domain.author import Author
from regroup.service.domain.errors import NotFoundError
from regroup.service.domain.hooks import DeliveryState
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.store.jobs.job_writer import JobWriter
from regroup.service.store.rows.records import Lease
from regroup.service.store.store import Store

ANA = Author("ana")


async def test_a_job_reports_its_whole_life(store: Store, queue: Any, walk: Any, emitter: Any, hook: Any, waiting: Any):
    await hook(events=("state", "generation"))
    job_id = await queue(labels={"team": "nlp"})
    await walk(job_id, emitter)
    rows = await waiting()
    assert [(row.event.type, row.event.data.get("to")) for row in rows] == [
        ("state", "QUEUED"), ("state", "PLACING"), ("state", "STARTING"), ("generation", None), ("state", "RUNNING"),
    ]  # fmt: skip
    numbers = [each.number for each in await store.events(job_id) if each.type in ("state", "generation")]
    assert [row.event.number for row in rows] == numbers
    assert [row.message_id for row in rows] == [f"{job_id}-{number}" for number in numbers]
    first = rows[0].event
    assert (first.job_id, first.job_name, first.project, first.labels) == (job_id, "gpt", "default", {"team": "nlp"})
    assert (first.actor, first.time_s, first.generation) == ("someone", 101.0, 0)
    assert (rows[0].state, rows[0].attempts, rows[0].next_attempt_at) == (DeliveryState.PENDING, 0, 0.0)
    async with store._database.read() as connection:
        assert abs(rows[0].created_at - await store._database.now(connection)) < 60, "the database's clock"


async def test_filters_select_events_and_jobs(queue: Any, store: Store, hook: Any, waiting: Any):
    await hook("ends", events=("state:CANCELLED",))
    await hook("nlp", events=("state",), labels={"team": "nlp"})
    await hook("off", is_enabled=False)
    await hook("other", project="other")
    for name, labels in (("a", {"team": "nlp", "tier": "1"}), ("b", {"team": "vision"}), ("c", {})):
        await store.cancel(await queue(name, labels=labels), now=200.0, author=ANA)
    found = {
        each: [(row.event.job_name, row.event.data["to"]) for row in await waiting(each)] for each in ("ends", "nlp")
    }
    assert found == {
        "ends": [("a", "CANCELLED"), ("b", "CANCELLED"), ("c", "CANCELLED")],
        "nlp": [("a", "QUEUED"), ("a", "CANCELLED")],
    }
    assert await waiting("off") == [] and await waiting("other", "other") == []


async def test_an_event_and_its_deliveries_are_one_transaction(store: Store, queue: Any, hook: Any, waiting: Any):
    job_id = await queue()
    await hook()
    with pytest.raises(ZeroDivisionError):
        async with store._database.write() as connection:
            writer = await JobWriter.lock(connection, job_id)
            await writer.move(JobState.CANCELLED, Reason.CANCELLED_BY_USER, now=5.0, actor="ana")
            raise ZeroDivisionError  # the server ends before the commit
    assert await waiting() == [] and len(await store.events(job_id)) == 1
    await store.cancel(job_id, now=6.0, author=ANA)
    assert len(await waiting()) == 1 and len(await store.events(job_id)) == 2


async def test_a_repeated_report_is_delivered_once(
    store: Store, lease: Lease, queue: Any, walk: Any, emitter: Any, hook: Any, waiting: Any
):
    job_id = await queue()
    await walk(job_id, emitter)
    await hook(events=("checkpoint",))
    report = emitter.report("checkpoint", "checkpoint:1", 1, step=1, generation=1, uri="file:///c")
    for _ in range(3):
        await store.ingest(lease, job_id, emitter.boot_id, [report], {})
    assert [row.event.data["step"] for row in await waiting()] == [1]


async def test_a_hook_gets_no_events_from_before_it(store: Store, queue: Any, hook: Any, waiting: Any):
    job_id = await queue()
    await hook()
    assert await waiting() == []
    await store.cancel(job_id, now=200.0, author=ANA)
    assert len(await waiting()) == 1


@pytest.mark.parametrize("project", ["with-hooks", "without"])
async def test_a_project_without_hooks_pays_no_statement(
    store: Store, queue: Any, lease: Lease, hook: Any, project: str
):
    await hook(project="with-hooks", events=("state",))
    statements: list[str] = []

    def note(*arguments: Any) -> None:
        statements.append(str(arguments[2]))

    engine = store._database._writer.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    job_id = await queue(project=project)
    await store.apply(lease, check_transition(job_id, JobState.QUEUED, JobState.PLACING, Reason.PLACED), now=500.0)
    event.remove(engine, "before_cursor_execute", note)
    extra = [
        each for each in statements if "FROM hooks" in each and "FROM jobs" not in each and "INTO jobs" not in each
    ]
    extra += [each for each in statements if "hook_deliveries" in each]
    assert statements and len(extra) == (4 if project == "with-hooks" else 0), extra


async def test_a_damaged_filter_delivers_nothing_and_breaks_nothing(store: Store, queue: Any, hook: Any, waiting: Any):
    await hook()
    await hook("sound")
    async with store._database.write() as connection:
        is_sqlite = connection.dialect.name == "sqlite"
        value = "'{not json'" if is_sqlite else "'{}'"
        await connection.execute(sa.text(f"UPDATE hooks SET labels = {value}, events = {value} WHERE id = 'hook_1'"))
    await queue()
    assert await waiting() == [] and len(await waiting("sound")) == 1


async def test_a_hook_can_be_deleted_while_an_event_is_written(store: Store, queue: Any, hook: Any):
    """Delete a hook during a transaction: PostgreSQL waits for it. Without the lock, the event would fail."""
    job_id = await queue()
    await hook()
    async with store._database.write() as connection:
        writer = await JobWriter.lock(connection, job_id)
        await writer.record("pin", {}, time_s=1.0, actor="ana")
        deletion = asyncio.create_task(store.hooks.delete("default", "hook_1", now=2.0))
        await wait_until_blocked(store)
        await writer.move(JobState.CANCELLED, Reason.CANCELLED_BY_USER, now=5.0, actor="ana")
    await deletion
    assert [each.type for each in await store.events(job_id)] == ["state", "pin", "state"]
    with pytest.raises(NotFoundError):
        await store.hooks.hook("default", "hook_1")


async def wait_until_blocked(store: Store) -> None:
    """Wait until a transaction of PostgreSQL waits for a lock. On SQLite, it waits for the only writing connection."""
    waiting = sa.text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%hooks%'")
    async with asyncio.timeout(10):
        while not store._database.single_process:
            async with store._database.read() as connection:
                if (await connection.execute(waiting)).scalar_one():
                    return
            await asyncio.sleep(0.01)
