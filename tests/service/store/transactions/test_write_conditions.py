"""Conditions of a request in the database: dry runs and compared states, on SQLite and on a real PostgreSQL."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from regroup.service.domain.author import Author
from regroup.service.domain.errors import ConflictError, NotFoundError, PreconditionError
from regroup.service.domain.identity import IdentityKind
from regroup.service.store.rows.identity_rows import IdentityRow
from regroup.service.store.rows.records import ProjectRow
from regroup.service.store.store import Store
from regroup.service.store.transactions.write_conditions import WriteConditions, obeying

ANN = Author("ann", address="10.0.0.1")


def dry_run() -> WriteConditions:
    conditions = WriteConditions()
    conditions.dry_run = True
    return conditions


def matching(tags: str) -> WriteConditions:
    conditions = WriteConditions()
    conditions.if_match = tags
    return conditions


async def test_a_dry_run_sees_its_changes_until_it_ends(store: Store) -> None:
    async with obeying(dry_run()):
        await store.queue.put_project(ProjectRow("vision", limit=4), author=ANN)
        await store.queue.put_project(ProjectRow("vision", limit=8), author=ANN)
        assert (await store.queue.project("vision")).limit == 8
    assert (await store.queue.project("vision")).limit is None
    await store.queue.put_project(ProjectRow("vision", limit=2), author=ANN)
    assert (await store.queue.project("vision")).limit == 2


async def test_a_refused_change_of_a_dry_run_leaves_its_other_changes(store: Store) -> None:
    row = IdentityRow("ana", IdentityKind.USER, None, False, 0.0, "test")
    async with obeying(dry_run()):
        await store.identities.create_identity(row, author=ANN)
        with pytest.raises(ConflictError):
            await store.identities.create_identity(row, author=ANN)
        assert (await store.identities.stored_token("none")) is None, "a snapshot reads the same transaction"
        assert [each.subject for each in await store.identities.identities()] == ["ana"]
    with pytest.raises(NotFoundError):
        await store.identities.identity("ana")


async def test_tasks_of_a_dry_run_share_its_transaction_one_at_a_time(store: Store) -> None:
    async with obeying(dry_run()):
        rows = [ProjectRow(f"p{number}", limit=number) for number in range(1, 9)]
        await asyncio.gather(*(store.queue.put_project(row, author=ANN) for row in rows))
        assert len(await store.queue.projects()) == 8
    assert await store.queue.projects() == []


async def test_a_task_that_outlives_a_dry_run_writes_as_usual(store: Store) -> None:
    may_write = asyncio.Event()

    async def outlive() -> None:
        await may_write.wait()
        await store.queue.put_project(ProjectRow("vision", limit=4), author=ANN)

    async with obeying(dry_run()):
        await store.queue.put_project(ProjectRow("vision", limit=8), author=ANN)
        task = asyncio.create_task(outlive())
    may_write.set()
    await task
    assert (await store.queue.project("vision")).limit == 4


async def test_a_dry_run_that_fails_leaves_no_transaction_open(store: Store) -> None:
    for _ in range(3):
        with pytest.raises(RuntimeError):
            async with obeying(dry_run()):
                await store.queue.put_project(ProjectRow("vision", limit=8), author=ANN)
                raise RuntimeError
        await asyncio.wait_for(store.queue.put_project(ProjectRow("other"), author=ANN), 5)
    assert [row.name for row in await store.queue.projects()] == ["other"]


async def test_a_change_compares_the_state_before_it(store: Store) -> None:
    unset = ProjectRow("vision").etag
    async with obeying(matching(unset)):
        await store.queue.put_project(ProjectRow("vision", limit=4), author=ANN)
    with pytest.raises(PreconditionError, match="vision has changed since you read it"):
        async with obeying(matching(unset)):
            await store.queue.put_project(ProjectRow("vision", limit=8), author=ANN)
    seen = await store.queue.project("vision")
    assert seen.limit == 4
    async with obeying(matching(f'"other", {seen.etag}')):
        await store.queue.put_project(ProjectRow("vision", limit=8), author=ANN)
        await store.queue.put_project(ProjectRow("vision", limit=9), author=ANN)  # a part of the same request
    assert (await store.queue.project("vision")).limit == 9


async def test_a_change_of_a_jobs_state_is_a_conflict_and_progress_is_not(
    store: Store, queue: Callable[..., Any], walk: Callable[..., Any], emitter: Any
) -> None:
    job = await store.job(await queue())
    await walk(job.id, emitter)
    now = await store.job(job.id)
    with pytest.raises(PreconditionError, match=f"is at version {now.version}"):
        async with obeying(matching(f'"{job.version}.{job.revision}"')):
            await store.cancel(job.id, now=6.0, author=ANN)
    with pytest.raises(PreconditionError, match="is not an ETag of a job"):
        async with obeying(matching('"abc"')):
            await store.cancel(job.id, now=6.0, author=ANN)
    assert (await store.job(job.id)).intents == {}
    async with obeying(matching(f'"{now.version}.0"')):
        assert (await store.cancel(job.id, now=6.0, author=ANN)).intents == {"cancel": True}
