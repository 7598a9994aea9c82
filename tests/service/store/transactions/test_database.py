"""Databases: opening, migrations and leases, on SQLite and on a real PostgreSQL."""

import asyncio
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import event
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_connection

from regroup.service.domain.errors import ConflictError, PreconditionError, SettingError, UnavailableError
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.store.rows.records import Lease
from regroup.service.store.schema.tables import metadata
from regroup.service.store.store import Store
from regroup.service.store.transactions import database as database_module
from regroup.service.store.transactions.database import _MIGRATIONS, Database


async def test_migrations_create_the_tables_of_the_code(database_url: str):
    database = await Database.open(database_url)
    try:
        async with database.write() as connection:
            context = connection.run_sync(lambda sync: compare_metadata(MigrationContext.configure(sync), metadata))
            assert await context == []
    finally:
        await database.close()


async def test_rows_survive_a_downgrade_and_an_upgrade(store: Store, queue, walk, emitter):
    job_id = await queue()
    await walk(job_id, emitter)
    before = await store.step_rows(job_id)

    def migrate(connection: sa.Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")
        command.upgrade(config, "head")

    async with store._database.write() as connection:
        await connection.run_sync(migrate)
    assert before and await store.step_rows(job_id) == before


async def test_earlier_jobs_get_the_actor_of_their_first_event_as_author(store: Store, queue):
    job_id, without_events = await queue("gpt"), await queue("other")

    def migrate(connection: sa.Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        command.downgrade(config, "0019")
        connection.execute(sa.text("DELETE FROM events WHERE job_id = :id"), {"id": without_events})
        command.upgrade(config, "head")

    async with store._database.write() as connection:
        await connection.run_sync(migrate)
    assert [(await store.job(each)).author for each in (job_id, without_events)] == ["someone", ""]


async def test_rows_are_present_after_reopening(database_url: str):
    first = await Store.open(database_url)
    key = await first.own_key("paging")
    await first.close()
    second = await Store.open(database_url)
    assert await second.own_key("paging") == key
    await second.close()


async def test_sqlite_serves_one_process(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/one.db"
    store = await Store.open(url)
    with pytest.raises(ConflictError, match="another process has locked"):
        await Store.open(url)
    await store.close()
    await (await Store.open(url)).close()


async def test_sqlite_readers_cannot_write(tmp_path: Path):
    database = await Database.open(f"sqlite:///{tmp_path}/one.db")
    with pytest.raises(UnavailableError, match="readonly"):
        async with database.read() as connection:
            await connection.execute(sa.text("DELETE FROM jobs"))
    await database.close()


@pytest.mark.parametrize("url", ["sqlite://", "mysql://h/x", "no url"])
async def test_an_unsupported_database_is_refused_with_supported_urls(url: str):
    with pytest.raises(SettingError, match="sqlite:///"):
        await Store.open(url)


async def test_a_database_that_is_down_is_unavailable():
    with pytest.raises(UnavailableError, match="does not answer"):
        await Store.open("postgresql://nobody@127.0.0.1:1/nothing")


async def test_the_clock_of_the_database_is_unix_time(database_url: str):
    database = await Database.open(database_url)
    async with database.read() as connection:
        now = await database.now(connection)
    await database.close()
    assert abs(now - time.time()) < 5


async def test_concurrent_writers_all_commit(store: Store):
    keys = await asyncio.gather(*(store.own_key(f"key-{number % 3}") for number in range(30)))
    assert len(set(keys)) == 3


async def test_a_cancelled_write_leaves_no_lock(tmp_path: Path):
    """Cancel a write whose query continues, because the driver's thread cannot be interrupted."""
    store = await Store.open(f"sqlite:///{tmp_path}/one.db")
    await store.own_key("paging")
    writing = asyncio.create_task(store.own_key("paging"))

    def cancel(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("SELECT"):
            writing.cancel()

    event.listen(store._database._writer.sync_engine, "before_cursor_execute", cancel)
    try:
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await writing
        assert await store.own_key("paging")
        del cancelled  # The traceback refers to the driver's cursor, as a logged one does.
    finally:
        await store.close()


async def test_a_newer_token_fences_the_old_leader(store: Store, lease: Lease, queue):
    job_id = await queue()
    newer = await store.acquire_lease("controller-a", 30.0)
    assert newer is not None and newer.token > lease.token
    with pytest.raises(PreconditionError, match="stop leading"):
        await store.renew_lease(lease, 30.0)
    placed = check_transition(job_id, JobState.QUEUED, JobState.PLACING, Reason.PLACED)
    with pytest.raises(PreconditionError):
        await store.apply(lease, placed, now=1.0)
    assert (await store.job(job_id)).state is JobState.QUEUED
    await store.renew_lease(newer, 30.0)
    assert (await store.apply(newer, placed, now=1.0)).state is JobState.PLACING


async def test_a_valid_lease_excludes_other_processes_on_postgres(store: Store, lease: Lease, database_url: str):
    other = await store.acquire_lease("controller-b", 30.0)
    if database_url.startswith("sqlite"):
        assert other is not None, "the file lock already ensures a single process"
        return
    assert other is None
    await store.renew_lease(lease, -1.0)
    acquired = await store.acquire_lease("controller-b", 30.0)
    assert acquired is not None and acquired.token == lease.token + 1


async def test_a_released_lease_is_free_at_once(store: Store, lease: Lease):
    await store.release_lease(lease)
    acquired = await store.acquire_lease("controller-b", 30.0)
    assert acquired is not None and acquired.token > lease.token


async def test_of_many_contenders_one_leads(store: Store, database_url: str):
    if database_url.startswith("sqlite"):
        return
    leases = await asyncio.gather(*(store.acquire_lease(f"controller-{number}", 30.0) for number in range(8)))
    assert len([lease for lease in leases if lease is not None]) == 1


@pytest.mark.postgres
async def test_connections_that_broke_while_they_were_idle_are_replaced(postgres_server, monkeypatch):
    database = await Database.open(postgres_server.create_database())
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(_read_slowly(database))
        await _end_other_connections(database)
        monkeypatch.setattr(database_module, "_TRUSTED_S", 0.0)
        for _ in range(4):
            assert await _read_slowly(database) == 1
    finally:
        await database.close()


@pytest.mark.postgres
async def test_a_connection_that_has_just_worked_is_not_tested(postgres_server, monkeypatch):
    tested = list[object]()
    monkeypatch.setattr(AsyncAdapt_asyncpg_connection, "ping", lambda self: tested.append(self))
    database = await Database.open(postgres_server.create_database())
    try:
        for _ in range(5):
            await _read_slowly(database)
        assert tested == []
        monkeypatch.setattr(database_module, "_TRUSTED_S", 0.0)
        await _read_slowly(database)
        assert len(tested) == 1
    finally:
        await database.close()


async def _read_slowly(database: Database) -> int:
    async with database.read() as connection:
        if not database.single_process:
            await connection.execute(sa.text("SELECT pg_sleep(0.05)"))
        return int((await connection.execute(sa.select(1))).scalar_one())


async def _end_other_connections(database: Database) -> None:
    others = "pid <> pg_backend_pid() AND datname = current_database()"
    async with database.read() as connection:
        ended = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"
        assert len((await connection.execute(sa.text(ended))).all()) >= 2, "the pool had several connections"
