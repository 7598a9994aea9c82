"""Audit records in both databases: written with their change, sealed into a chain, and removed from its oldest end."""

import dataclasses
from typing import Any

import pytest

from regroup.service.domain.audit import AuditRecord, ChainEnd, ChainReport, ChainVerifier
from regroup.service.domain.author import CONTROLLER, Author
from regroup.service.store.access.audit import BATCH_RECORDS, AuditFilter, AuditSize, Change, record_change
from regroup.service.store.schema.access_tables import audit
from regroup.service.store.store import Store

ANA = Author("ana", "t1", "127.0.0.1")
CANCEL = Change("jobs.cancel", "job_1", "vision", {"state": "RUNNING"}, {"state": "CANCELLED"})


async def write(store: Store, *times: float, author: Author = ANA, **fields: Any) -> None:
    async with store._database.write() as connection:
        for now in times:
            await record_change(connection, author, dataclasses.replace(CANCEL, **fields), now)


async def verify(store: Store) -> ChainReport:
    """Verify all sealed records against the ends of the chain."""
    start, end = await store.audit.chain()
    verifier, position = ChainVerifier(start), start.position
    while rows := await store.audit.sealed_after(position, AuditFilter()):
        for row in rows:
            verifier.add(row)
        position = rows[-1].position or 0
    return verifier.report(end)


async def test_a_record_is_written_with_its_change_or_not_at_all(store: Store) -> None:
    await write(store, 1.0)
    with pytest.raises(RuntimeError):
        async with store._database.write() as connection:
            await record_change(connection, ANA, CANCEL, 2.0)
            raise RuntimeError
    await write(store, 3.0, author=CONTROLLER)
    await write(store, 4.0, after=CANCEL.before)
    (record,) = await store.audit.page(AuditFilter(), None, 10)
    assert dataclasses.replace(record, id=0) == AuditRecord(
        0, 1.0, "ana", "t1", "127.0.0.1", "jobs.cancel", "vision", "job_1", {"state": "RUNNING"},
        {"state": "CANCELLED"}, position=None, digest=None,
    )  # fmt: skip


async def test_records_are_sealed_once_in_batches(store: Store) -> None:
    await write(store, *map(float, range(BATCH_RECORDS + 3)))
    assert await store.audit.size() == AuditSize(0, BATCH_RECORDS + 3)
    assert [await store.audit.seal() for _ in range(3)] == [BATCH_RECORDS, 3, 0]
    assert (await verify(store)).count == BATCH_RECORDS + 3
    await write(store, 9.0)
    assert await store.audit.size() == AuditSize(BATCH_RECORDS + 3, 1)
    assert await store.audit.seal() == 1
    assert await verify(store) == ChainReport(BATCH_RECORDS + 4, (await store.audit.chain())[1])


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("content", "record 2 was changed"),
        ("a record in the middle", "record 2 is missing"),
        ("the last record", "the records from 3 to 3 are missing"),
    ],
)
async def test_a_changed_or_removed_record_is_found(store: Store, change: str, fault: str) -> None:
    await write(store, 1.0, 2.0, 3.0)
    await store.audit.seal()
    async with store._database.write() as connection:
        match change:
            case "content":
                await connection.execute(audit.update().where(audit.c.position == 2).values(actor="bob"))
            case "a record in the middle":
                await connection.execute(audit.delete().where(audit.c.position == 2))
            case _:
                await connection.execute(audit.delete().where(audit.c.position == 3))
    assert fault in (await verify(store)).fault


async def test_old_records_are_removed_without_a_fault(store: Store) -> None:
    await write(store, 1.0, 2.0, 3.0)
    await store.audit.seal()
    assert [await store.audit.remove_before(3.0) for _ in range(2)] == [2, 0]
    assert await verify(store) == ChainReport(1, (await store.audit.chain())[1])
    await write(store, 4.0)
    assert await store.audit.remove_before(9.0) == 1, "the record that is not sealed stays"
    assert await store.audit.seal() == 1 and (await verify(store)).count == 1
    assert (await store.audit.chain())[0].position == 3


async def test_records_are_filtered_and_paged(store: Store) -> None:
    await write(store, 1.0, 2.0)
    await write(store, 3.0, author=Author("bob", None, "::1"), action="projects.put", object="speech", project="speech")
    await write(store, 4.0, project=None, action="nodes.cordon", object="n1")

    async def times(before: int | None = None, limit: int = 10, **fields: Any) -> list[float]:
        return [row.time_s for row in await store.audit.page(AuditFilter(**fields), before, limit)]

    assert await times() == [4.0, 3.0, 2.0, 1.0] and await times(has_cluster=False) == [3.0, 2.0, 1.0]
    assert await times(projects=frozenset({"vision"}), has_cluster=False) == [2.0, 1.0]
    assert await times(projects=frozenset(), has_cluster=False) == [] and await times(projects=frozenset()) == [4.0]
    assert await times(actor="bob") == await times(object="speech") == await times(action="projects.put") == [3.0]
    assert await times(since_s=2.0, until_s=4.0) == [3.0, 2.0]
    first = await store.audit.page(AuditFilter(), None, 2)
    assert await times(before=first[-1].id) == [2.0, 1.0]


async def test_the_ends_of_an_empty_chain_are_equal(store: Store) -> None:
    assert await store.audit.chain() == (ChainEnd(0, "0" * 64), ChainEnd(0, "0" * 64))
    assert await store.audit.seal() == 0 and await verify(store) == ChainReport(0, ChainEnd(0, "0" * 64))
