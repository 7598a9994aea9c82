"""Storage of audit records: written in the transaction of their change, and sealed into a chain shortly after it.

Sealing gives a record its position and its digest. It is a transaction of its own, because changes would otherwise
wait for one another.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.audit import ORIGIN, AuditRecord, ChainEnd, digest_of
from regroup.service.domain.author import Author
from regroup.service.domain.versions import etag_of
from regroup.service.store.jobs.job_writer import JobWriter
from regroup.service.store.rows.records import JobRow
from regroup.service.store.schema.access_tables import audit, audit_chain
from regroup.service.store.schema.json_values import plain
from regroup.service.store.transactions.database import Database
from regroup.service.store.transactions.inserts import add_if_absent
from regroup.service.store.transactions.write_conditions import current_conditions

BATCH_RECORDS = 500
"""Number of records that one transaction seals, reads or removes at most."""
_HEAD, _TAIL = "head", "tail"


@dataclass(frozen=True)
class Change:
    """A change of an object, for its audit record."""

    action: str
    """Noun and verb, for example `jobs.cancel`."""
    object: str
    """Id or name of the changed object."""
    project: str | None = None
    """Project of the object; None for what belongs to no project."""
    before: Any = None
    """The object before the change; None if it did not exist."""
    after: Any = None
    """The object after it; None if it does not exist any more."""
    etag_before: str | None = None
    """Entity tag of the object before the change; None: that of `before`."""


@dataclass(frozen=True)
class AuditFilter:
    """A filter of audit records. Fields that are None match all records."""

    projects: frozenset[str] | None = None
    """Records of these projects."""
    has_cluster: bool = True
    """Also records that belong to no project."""
    actor: str | None = None
    action: str | None = None
    object: str | None = None
    since_s: float | None = None
    """Unix seconds, included."""
    until_s: float | None = None
    """Unix seconds, not included."""


@dataclass(frozen=True)
class AuditSize:
    """Numbers of records, for the metrics."""

    sealed: int
    """Records that were sealed since the first one, also removed ones."""
    unsealed: int


async def record_change(connection: AsyncConnection, author: Author, change: Change, now: float) -> None:
    """Write an audit record in the transaction of its change.

    Writes nothing for the server's own decisions, and for a request that changes nothing.

    Raises:
        PreconditionError: the object before the change does not match `If-Match` of the request.
    """
    await record_changes(connection, [(author, change, now)])


async def record_changes(connection: AsyncConnection, changes: Sequence[tuple[Author, Change, float]]) -> None:
    """Write the audit records of several changes, as `record_change` does. Each has its author and time."""
    rows = list[dict[str, Any]]()
    for author, change, now in changes:
        before, after = plain(change.before), plain(change.after)
        if (conditions := current_conditions()) is not None:
            etag_before = change.etag_before or (None if before is None else etag_of(before))
            conditions.compare(change.object, etag_before)
        if author.address is not None and before != after:
            rows.append(_audit_row(author, change, before, after, now))
    if rows:
        await connection.execute(audit.insert(), rows)


def _audit_row(author: Author, change: Change, before: Any, after: Any, now: float) -> dict[str, Any]:
    return {
        "time_s": now,
        "actor": author.name,
        "token_id": author.token_id,
        "address": author.address,
        "action": change.action,
        "project": change.project,
        "object": change.object,
        "before": before,
        "after": after,
    }


@asynccontextmanager
async def audited(writer: JobWriter, author: Author, action: str, now: float) -> AsyncGenerator[None]:
    """Write the audit record of the change of a job that the block makes.

    Raises:
        PreconditionError: the job has another version than `If-Match` of the request.
    """
    if (conditions := current_conditions()) is not None:
        conditions.compare_job(writer.job.id, writer.job.version)
    before = audited_fields(writer.job)
    yield
    job = writer.job
    change = Change(action, job.id, job.project, before, audited_fields(job))
    await record_change(writer.connection, author, change, now)


def audited_fields(job: JobRow) -> dict[str, Any]:
    """Return what an audit record shows of a job."""
    return {"name": job.name, "state": job.state, "intents": dict(job.intents)}


class AuditStore:
    """The part of `Store` for audit records: `store.audit`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, author: Author, change: Change, now: float) -> None:
        """Write the audit record of a change outside the database."""
        async with self._database.write() as connection:
            await record_change(connection, author, change, now)

    async def page(self, selection: AuditFilter, before_id: int | None, limit: int) -> list[AuditRecord]:
        """Return up to `limit` records with ids below `before_id`, the newest first."""
        query = sa.select(audit).where(*_conditions(selection)).order_by(audit.c.id.desc()).limit(limit)
        if before_id is not None:
            query = query.where(audit.c.id < before_id)
        return await self._read(query)

    async def sealed_after(self, position: int, selection: AuditFilter) -> list[AuditRecord]:
        """Return the next batch of sealed records above a position, in order."""
        query = sa.select(audit).where(audit.c.position > position, *_conditions(selection))
        return await self._read(query.order_by(audit.c.position).limit(BATCH_RECORDS))

    async def chain(self) -> tuple[ChainEnd, ChainEnd]:
        """Return the point before the oldest sealed record, and the newest sealed record."""
        async with self._database.read_snapshot() as connection:
            return await _end(connection, _TAIL), await _end(connection, _HEAD)

    async def size(self) -> AuditSize:
        """Return the numbers of records."""
        unsealed = sa.select(sa.func.count()).select_from(audit).where(audit.c.position.is_(None))
        async with self._database.read() as connection:
            count = (await connection.execute(unsealed)).scalar_one()
            return AuditSize((await _end(connection, _HEAD)).position, count)

    async def seal(self) -> int:
        """Seal a batch of records in the order of their ids; return their number. Servers seal one after the other."""
        unsealed = sa.select(audit).where(audit.c.position.is_(None)).order_by(audit.c.id).limit(BATCH_RECORDS)
        async with self._database.read() as connection:
            if (await connection.execute(unsealed.limit(1))).first() is None:
                return 0
        async with self._database.write() as connection:
            end = await _lock_end(connection, _HEAD)
            rows = [AuditRecord(**row) for row in (await connection.execute(unsealed)).mappings()]
            for row in rows:
                end = ChainEnd(end.position + 1, digest_of(row, end))
                sealed = audit.update().where(audit.c.id == row.id)
                await connection.execute(sealed.values(position=end.position, digest=end.digest))
            await _move_end(connection, _HEAD, end)
        return len(rows)

    async def remove_before(self, time_s: float) -> int:
        """Remove a batch of the oldest sealed records, and move the start of the chain; return their number."""
        async with self._database.write() as connection:
            end = await _lock_end(connection, _TAIL)
            query = sa.select(audit.c.position, audit.c.digest, audit.c.time_s).where(audit.c.position > end.position)
            rows = (await connection.execute(query.order_by(audit.c.position).limit(BATCH_RECORDS))).all()
            count = next((index for index, row in enumerate(rows) if row.time_s >= time_s), len(rows))
            if count:
                end = ChainEnd(rows[count - 1].position, rows[count - 1].digest)
                await connection.execute(audit.delete().where(audit.c.position <= end.position))
                await _move_end(connection, _TAIL, end)
        return count

    async def _read(self, query: sa.Select[Any]) -> list[AuditRecord]:
        async with self._database.read() as connection:
            return [AuditRecord(**row) for row in (await connection.execute(query)).mappings()]


def _conditions(selection: AuditFilter) -> list[sa.ColumnElement[bool]]:
    found: list[sa.ColumnElement[bool]] = []
    if selection.projects is not None:
        mine = audit.c.project.in_(sorted(selection.projects))
        found.append(sa.or_(mine, audit.c.project.is_(None)) if selection.has_cluster else mine)
    elif not selection.has_cluster:
        found.append(audit.c.project.is_not(None))
    for name in ("actor", "action", "object"):
        if (value := getattr(selection, name)) is not None:
            found.append(audit.c[name] == value)
    if selection.since_s is not None:
        found.append(audit.c.time_s >= selection.since_s)
    if selection.until_s is not None:
        found.append(audit.c.time_s < selection.until_s)
    return found


async def _end(connection: AsyncConnection, name: str, *, is_locked: bool = False) -> ChainEnd:
    query = sa.select(audit_chain).where(audit_chain.c.name == name)
    row = (await connection.execute(query.with_for_update() if is_locked else query)).mappings().one_or_none()
    return ORIGIN if row is None else ChainEnd(row["position"], row["digest"])


async def _lock_end(connection: AsyncConnection, name: str) -> ChainEnd:
    """Return an end of the chain and lock it until the transaction ends. The first call creates it."""
    await add_if_absent(connection, audit_chain, name=name, position=ORIGIN.position, digest=ORIGIN.digest)
    return await _end(connection, name, is_locked=True)


async def _move_end(connection: AsyncConnection, name: str, end: ChainEnd) -> None:
    update = audit_chain.update().where(audit_chain.c.name == name)
    await connection.execute(update.values(position=end.position, digest=end.digest))
