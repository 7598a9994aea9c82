"""Submissions of jobs in groups: each is accepted or refused for itself, and a group costs one transaction."""

import asyncio
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from regroup.service.domain.author import Author
from regroup.service.domain.errors import ConflictError, QueueLimitError
from regroup.service.store.access.audit import AuditFilter
from regroup.service.store.rows.records import JobRow, NewJob, ProjectRow
from regroup.service.store.schema.tables import idempotency, jobs
from regroup.service.store.store import Store
from regroup.service.store.submissions import ProjectChangedError
from regroup.service.store.transactions.idempotency import RepeatedRequestError, RequestKey

ANA = Author("ana", "token", "127.0.0.1")


@contextmanager
def counted(store: Store) -> Iterator[list[str]]:
    """Collect the transactions that write."""
    begun: list[str] = []
    engine = store._database._writer.sync_engine

    def note(_: Any) -> None:
        begun.append("begin")

    event.listen(engine, "begin", note)
    yield begun
    event.remove(engine, "begin", note)


@pytest.fixture
def submit(store: Store, make_spec):
    async def submit_one(number: int, name: str = "", **options: Any) -> JobRow | Exception:
        fields = options.pop("fields", {})
        new = NewJob(f"job_{number:04}", make_spec(name or f"name-{number}", **fields), "file:///s")
        new = dataclasses.replace(new, **options.pop("new", {}))
        try:
            return await store.submissions.submit(new, now=float(number), author=options.pop("author", ANA), **options)
        except Exception as error:
            return error

    return submit_one


async def test_a_group_costs_one_transaction_and_each_job_has_its_records(store: Store, submit, make_hook) -> None:
    await store.hooks.create(make_hook(project="hooked"), author=ANA)
    fields = [{"labels": {"number": str(number)}, "project": ("default", "hooked")[number % 2]} for number in range(40)]
    with counted(store) as begun:
        rows = await asyncio.gather(*(submit(number, fields=fields[number]) for number in range(40)))
    assert len(begun) <= 3, "the first job is alone, and the others share a transaction"
    for number, row in enumerate(rows):
        assert isinstance(row, JobRow) and row == await store.job(row.id), "the answer is what is stored"
        (first,) = await store.events(row.id)
        assert (first.number, first.type, first.time_s, first.actor) == (1, "state", float(number), "ana")
        assert first.data["to"] == "QUEUED" and row.labels == {"number": str(number)}
    records = await store.audit.page(AuditFilter(action="jobs.submit"), None, 100)
    assert sorted(record.object for record in records) == [row.id for row in rows]
    assert (await store.hooks.deliveries.backlog()).pending == 20


async def test_a_refused_job_disturbs_no_other_and_leaves_nothing(store: Store, submit) -> None:
    await store.queue.put_project(ProjectRow("default", limit=8))
    current = await store.queue.project("default")
    assert isinstance(await submit(0, "taken", request=RequestKey("ana", "earlier", "hash")), JobRow)
    found = await asyncio.gather(
        submit(1, project=current),
        submit(2, "taken", request=RequestKey("ana", "of-a-taken-name", "hash")),
        submit(3, request=RequestKey("ana", "earlier", "other hash")),
        submit(4, project=ProjectRow("default")),
        submit(5, "twice"),
        submit(6, "twice"),
        submit(7, request=RequestKey("ana", "same", "hash")),
        submit(8, request=RequestKey("ana", "same", "hash")),
        submit(9, author=Author("bob"), most=1),
        submit(10, author=Author("bob"), most=1),
    )
    types = [type(each) for each in found]
    assert types[:7] == [
        JobRow, ConflictError, RepeatedRequestError, ProjectChangedError, JobRow, ConflictError, JobRow,
    ]  # fmt: skip
    assert issubclass(types[7], ConflictError) and types[8:] == [JobRow, QueueLimitError]
    assert isinstance(found[2], RepeatedRequestError) and found[2].response == {"job_id": "job_0000"}
    assert isinstance(found[3], ProjectChangedError) and found[3].project == current
    async with store._database.read() as connection:
        stored = set((await connection.execute(sa.select(jobs.c.id))).scalars())
        keys = set((await connection.execute(sa.select(idempotency.c.key))).scalars())
    assert stored == {f"job_{number:04}" for number in (0, 1, 5, 7, 9)}
    assert keys == {"earlier", "same"}
    records = await store.audit.page(AuditFilter(), None, 100)
    assert len([each for each in records if each.action == "jobs.submit"]) == 4, "bob's author has no address"


async def test_a_job_that_the_database_cannot_store_fails_alone(store: Store, submit) -> None:
    found = await asyncio.gather(submit(0), submit(1), submit(2, new={"resume_uri": object()}), submit(3))
    assert [isinstance(each, JobRow) for each in found] == [True, True, False, True]
    assert isinstance(found[2], Exception) and "resume_uri" in str(found[2]) + repr(vars(found[2]))


async def test_the_limit_is_exact_although_not_every_job_is_counted(store: Store, submit) -> None:
    statements = list[str]()
    engine = store._database._writer.sync_engine
    event.listen(engine, "before_cursor_execute", lambda *args: statements.append(str(args[2])))
    for number in range(60):
        result = await submit(number, most=50)
        assert isinstance(result, JobRow) is (number < 50), number
    assert sum("count(" in each for each in statements) < 40, "a count is valid for some jobs"


async def test_other_servers_see_the_limit_too(database_url: str, store: Store, submit, make_spec) -> None:
    if database_url.startswith("sqlite"):
        pytest.skip("SQLite serves one process")
    other = await Store.open(database_url)
    try:
        for number in range(10):
            assert isinstance(await submit(number, most=10), JobRow)
        new = NewJob("job_other", make_spec("other"), "file:///s")
        with pytest.raises(QueueLimitError):
            await other.submissions.submit(new, now=1.0, author=ANA, most=10)
    finally:
        await other.close()
