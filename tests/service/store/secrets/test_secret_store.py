"""Secrets in both databases: versions, audit records without values, bounds, and rows that were exchanged."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from regroup.service.domain.author import Author
from regroup.service.domain.credentials.keyring import Keyring, KeyringError
from regroup.service.domain.errors import ConflictError, NotFoundError
from regroup.service.store.access.audit import AuditFilter
from regroup.service.store.schema.secret_tables import secrets
from regroup.service.store.secrets import secret_store
from regroup.service.store.store import Store

VALUE = "hunter2-4f1d09c6"
ANA = Author("ana", None, "127.0.0.1")
Set = Callable[..., Any]
Ring = Callable[..., Keyring]


async def test_each_value_has_a_version_and_its_author(store: Store, set_secret: Set, make_ring: Ring) -> None:
    first = await set_secret(author=Author("ana"))
    assert (first.version, first.created_by, first.created_at, first.updated_at) == (1, "ana", 100.0, 100.0)
    second = await set_secret(value="another", now=200.0, author=Author("ben"))
    assert (second.version, second.created_by, second.updated_by, second.updated_at) == (2, "ana", "ben", 200.0)
    assert second == await store.secrets.secret("vision", "hf-token") and second.etag != first.etag
    assert make_ring(1).open(second.sealed, second.owner) == "another"
    assert VALUE not in repr(first) and first.sealed not in repr(first)


async def test_secrets_belong_to_one_project(store: Store, set_secret: Set) -> None:
    await set_secret("b")
    await set_secret("a")
    await set_secret("a", project="speech")
    assert [row.name for row in await store.secrets.secrets("vision")] == ["a", "b"]
    assert [row.name for row in await store.secrets.secrets("vision", {"b", "c"})] == ["b"]
    await store.secrets.delete("vision", "a", now=1.0)
    for call in (store.secrets.secret("vision", "a"), store.secrets.delete("vision", "a", now=1.0)):
        with pytest.raises(NotFoundError, match="project 'vision' has no secret 'a'; `regroup secret list"):
            await call
    assert (await store.secrets.secret("speech", "a")).version == 1


async def test_each_change_has_an_audit_record_without_the_value(store: Store, set_secret: Set) -> None:
    row = await set_secret(author=ANA)
    await set_secret(value="another", author=ANA, now=200.0)
    await store.secrets.record_use("vision", ["hf-token"], now=300.0)
    await store.secrets.delete("vision", "hf-token", now=400.0, author=ANA)
    records = (await store.audit.page(AuditFilter(), None, 10))[::-1]
    assert [(each.action, each.object, each.project) for each in records] == [
        ("secrets.set", "hf-token", "vision"), ("secrets.set", "hf-token", "vision"),
        ("secrets.delete", "hf-token", "vision"),
    ]  # fmt: skip
    assert records[0].before is None and records[1].after["version"] == 2 and records[2].after is None
    assert VALUE not in str(records) and row.sealed not in str(records) and "sealed" not in str(records)


async def test_a_use_changes_neither_version_nor_etag(store: Store, set_secret: Set) -> None:
    row = await set_secret()
    await set_secret("other")
    await store.secrets.record_use("vision", ["hf-token", "gone"], now=300.0)
    used = await store.secrets.secret("vision", "hf-token")
    assert (used.used_at, used.etag, used.version) == (300.0, row.etag, 1)
    assert (await store.secrets.secret("vision", "other")).used_at is None


async def test_an_exchanged_row_is_refused(store: Store, set_secret: Set, make_ring: Ring) -> None:
    """Exchange rows, as a person with access to the database can, for example to read a secret in another job."""
    mine, theirs = await set_secret("mine", "of eve"), await set_secret("theirs", VALUE, project="speech")
    async with store._database.write() as connection:
        exchanged = secrets.update().where(secrets.c.project == "vision", secrets.c.name == "mine")
        await connection.execute(exchanged.values(sealed=theirs.sealed))
    row = await store.secrets.secret("vision", "mine")
    assert row.sealed == theirs.sealed != mine.sealed
    with pytest.raises(KeyringError, match="secret 'mine' of project 'vision' was changed, or belongs to another"):
        make_ring(1).open(row.sealed, row.owner)


async def test_a_former_value_that_replaces_the_newest_is_refused(
    store: Store, set_secret: Set, make_ring: Ring
) -> None:
    former = await set_secret(value="leaked")
    await set_secret(value=VALUE)
    async with store._database.write() as connection:
        await connection.execute(secrets.update().values(sealed=former.sealed))
    row = await store.secrets.secret("vision", "hf-token")
    with pytest.raises(KeyringError, match="was changed"):
        make_ring(1).open(row.sealed, row.owner)


async def test_the_number_of_secrets_is_bounded(store: Store, set_secret: Set, monkeypatch: pytest.MonkeyPatch) -> None:
    assert secret_store.MAX_SECRETS == 100
    monkeypatch.setattr(secret_store, "MAX_SECRETS", 2)
    await set_secret("a")
    await set_secret("b")
    with pytest.raises(ConflictError, match="has 2 secrets, the maximum; delete one"):
        await set_secret("c")
    assert (await set_secret("b")).version == 2, "an existing one can be replaced"
    await set_secret("c", project="speech")


async def test_requests_at_the_same_time_make_one_secret(store: Store, set_secret: Set, make_ring: Ring) -> None:
    results = await asyncio.gather(*(set_secret(value=f"value {n}") for n in range(8)), return_exceptions=True)
    refused = [each for each in results if isinstance(each, BaseException)]
    assert all(isinstance(each, ConflictError) and "at the same time" in str(each) for each in refused)
    row = await store.secrets.secret("vision", "hf-token")
    assert row.version == 8 - len(refused)
    assert make_ring(1).open(row.sealed, row.owner).startswith("value ")


async def test_no_column_has_the_value(store: Store, set_secret: Set) -> None:
    await set_secret()
    async with store._database.read() as connection:
        rows = (await connection.execute(sa.select(secrets))).mappings().all()
    assert len(rows) == 1 and VALUE not in str([dict(row) for row in rows])
