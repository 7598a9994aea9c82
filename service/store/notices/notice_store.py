"""Reading of notices in an order that never changes: no notice appears before one that was read.

PostgreSQL gives out numbers before the commit, so a lower number may become visible after a higher one. A reader that
finds a gap waits until all transactions that were in progress at that time have ended. After that, the gap is filled
or remains. SQLite writes one transaction at a time.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import sqlalchemy as sa

from regroup.service.store.notices.notice_rows import Notice, Topic
from regroup.service.store.schema.notice_tables import notices
from regroup.service.store.transactions.database import Database

KEPT_S = 3600.0
"""Age at which notices are removed. A client that was away for longer reads all objects again."""
BATCH_ROWS = 5000
"""Number of rows that one transaction removes at most."""
_SETTLE_S = 2.0
"""Longest wait for transactions in progress. A transaction of the server takes a fraction of it."""
_POLL_S = 0.02
_COLUMNS = [notices.c[field.name] for field in fields(Notice)]


@dataclass(frozen=True)
class NoticeRange:
    """The numbers of the stored notices; 0 and 0 before the first one."""

    oldest: int
    newest: int

    def has_all_after(self, number: int) -> bool:
        """Return True if no notice after this number was removed, and the number itself was given out."""
        return self.oldest - 1 <= number <= self.newest


@dataclass(frozen=True)
class _Snapshot:
    """The transactions of PostgreSQL that are in progress."""

    oldest: int
    """Id below which all have ended."""
    next: int
    """Id above all that have begun."""


class NoticeStore:
    """The part of `Store` for notices: `store.notices`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def after(self, number: int, limit: int) -> list[Notice]:
        """Return the notices after a number, in order. Later calls find none that belongs between them."""
        query = sa.select(*_COLUMNS).where(notices.c.number > number).order_by(notices.c.number).limit(limit)
        found, begun = await self._read(query)
        if not found or begun is None or _is_without_gap(number, found):
            return found
        settled = query.where(notices.c.number <= found[-1].number)
        deadline_s = time.monotonic() + _SETTLE_S
        while True:
            found, now = await self._read(settled)
            if now is None or now.oldest >= begun.next or time.monotonic() >= deadline_s:
                return found
            await asyncio.sleep(_POLL_S)

    async def range(self) -> NoticeRange:
        """Return the numbers of the stored notices. Later calls of `after` find none below `newest`."""
        query = sa.select(sa.func.min(notices.c.number), sa.func.max(notices.c.number))
        deadline_s = time.monotonic() + _SETTLE_S
        async with self._database.read() as connection:
            oldest, newest = (await connection.execute(query)).one()
        begun = await self._snapshot()
        while begun is not None and time.monotonic() < deadline_s:
            now = await self._snapshot()
            if now is None or now.oldest >= begun.next:
                break
            await asyncio.sleep(_POLL_S)
        return NoticeRange(int(oldest or 0), int(newest or 0))

    async def remove_before(self, created_before: float) -> int:
        """Remove a batch of old notices; return their number. The newest one is kept, so that its number is known."""
        oldest = sa.select(notices.c.number, notices.c.created_at).order_by(notices.c.number).limit(BATCH_ROWS + 1)
        async with self._database.write() as connection:
            rows = (await connection.execute(oldest)).all()
            count = next((index for index, row in enumerate(rows) if row.created_at >= created_before), len(rows))
            count = min(count, len(rows) - 1)
            if count > 0:
                await connection.execute(notices.delete().where(notices.c.number <= rows[count - 1].number))
        return max(0, count)

    async def _read(self, query: sa.Select[Any]) -> tuple[list[Notice], _Snapshot | None]:
        """Return the notices, and the transactions in progress at the time that the query saw; None on SQLite."""
        if not self._database.single_process:
            query = query.add_columns(*_snapshot_columns())
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).mappings().all()
        found = [_notice(row) for row in rows]
        if self._database.single_process or not rows:
            return found, None
        return found, _Snapshot(rows[0]["oldest_transaction"], rows[0]["next_transaction"])

    async def _snapshot(self) -> _Snapshot | None:
        if self._database.single_process:
            return None
        async with self._database.read() as connection:
            row = (await connection.execute(sa.select(*_snapshot_columns()))).one()
        return _Snapshot(row.oldest_transaction, row.next_transaction)


def _is_without_gap(number: int, found: Sequence[Notice]) -> bool:
    return found[-1].number - number == len(found)


def _snapshot_columns() -> Sequence[sa.ColumnElement[int]]:
    snapshot = sa.func.pg_current_snapshot()
    ends = {"oldest_transaction": sa.func.pg_snapshot_xmin, "next_transaction": sa.func.pg_snapshot_xmax}
    return [sa.cast(sa.cast(end(snapshot), sa.Text), sa.BigInteger).label(name) for name, end in ends.items()]


def _notice(row: Any) -> Notice:
    values: dict[str, Any] = {field.name: row[field.name] for field in fields(Notice)}
    values["topic"] = Topic(row["topic"])
    return Notice(**values)
