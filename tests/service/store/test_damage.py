"""Damaged records and a damaged database: each job stands alone, and the store reports the damage."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from regroup.service.domain.author import Author
from regroup.service.domain.errors import DamagedDatabaseError, UnavailableError
from regroup.service.domain.states import JobState
from regroup.service.store.rows.records import PLATFORM_FAULT, JobFilter
from regroup.service.store.store import Store


async def overwrite(store: Store, statement: str, **values: Any) -> None:
    async with store._database.write() as connection:
        await connection.execute(sa.text(statement), values)


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    """SQLite only: PostgreSQL checks types and JSON itself."""
    return f"sqlite:///{tmp_path}/regroup.db"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("spec", "{ torn"),
        ("spec", "[]"),
        ("spec", "[" * 5000),
        ("conditions", '[{"type": 1}]'),
        ("conditions", "null"),
        ("intents", "7"),
        ("step", "seven"),
        ("queued_at", 9e999),
        ("revision", 1.5),
        ("layout", '"wide"'),
    ],
)
async def test_a_damaged_column_affects_only_its_job(
    store: Store, queue: Callable[..., Any], column: str, value: Any
) -> None:
    first, broken, last = await queue("first"), await queue("broken"), await queue("last")
    await overwrite(store, f"UPDATE jobs SET {column} = :value WHERE id = :id", value=value, id=broken)
    found = {job.id: job for job in await store.queued_jobs()}
    assert list(found) == [first, broken, last]
    assert found[broken].damaged == (column,) and not found[first].damaged and not found[last].damaged
    fault = found[broken].platform_fault
    assert fault is not None and fault.status and fault.reason == "corrupt_record" and column in fault.message
    assert len((await store.page(JobFilter(), None, 10)).jobs) == 3
    assert (await store.find_job("broken", "default")).id == broken
    assert (await store.cancel(broken, now=1.0, author=Author("user"))).state is JobState.CANCELLED


async def test_text_that_is_not_unicode_is_replaced(store: Store, queue: Callable[..., Any]) -> None:
    broken = await queue("broken")
    await queue("sound")
    await overwrite(store, "UPDATE jobs SET message = CAST(x'61ff62' AS TEXT) WHERE id = :id", id=broken)
    assert [job.message for job in await store.queued_jobs()] == ["a\ufffdb", ""]


async def test_damaged_events_and_allocations_are_read_as_empty(store: Store, queue: Callable[..., Any]) -> None:
    job_id = await queue()
    await overwrite(store, "UPDATE events SET data = 'torn' WHERE job_id = :id", id=job_id)
    assert [event.data for event in await store.events(job_id)] == [{}]


async def test_a_damaged_page_is_reported_as_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pages.db"
    await (await Store.open(f"sqlite:///{file}")).close()
    with file.open("r+b") as content:
        size = int.from_bytes(content.read(18)[16:18], "big")
        for page in range(1, file.stat().st_size // size):
            content.seek(page * size)
            content.write(b"\xff" * size)
    with pytest.raises(DamagedDatabaseError, match="restore the database from a backup"):
        await Store.open(f"sqlite:///{file}")
    assert "the database is damaged" in capsys.readouterr().out


async def test_a_file_that_was_deleted_takes_no_more_writes(
    store: Store, queue: Callable[..., Any], tmp_path: Path
) -> None:
    await queue("before")
    (tmp_path / "regroup.db").rename(tmp_path / "moved.db")
    with pytest.raises(UnavailableError, match="was deleted or replaced"):
        await queue("after")
    with pytest.raises(UnavailableError, match="was deleted or replaced"):
        await store.ping()
    (tmp_path / "moved.db").rename(tmp_path / "regroup.db")
    await queue("after")
    await store.ping()


def test_the_condition_has_the_name_of_the_api() -> None:
    assert PLATFORM_FAULT == "PlatformFault"
