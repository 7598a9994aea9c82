"""Persistent state of the sessions of browsers. A session that was ended is removed; its audit records remain."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.author import CONTROLLER, Author
from regroup.service.domain.errors import NotFoundError
from regroup.service.store.access.audit import Change, record_change
from regroup.service.store.rows.identity_rows import SessionRow
from regroup.service.store.schema.access_tables import sessions
from regroup.service.store.transactions.database import Database

MOST_LISTED = 1000
"""Largest number of sessions in a list."""


class SessionStore:
    """The part of `Store` for sessions: `store.identities.sessions`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, row: SessionRow, *, most: int, author: Author = CONTROLLER) -> None:
        """Store a session. Removes expired ones, and the oldest of the subject beyond `most`."""
        mine = sa.select(sessions.c.id).where(sessions.c.subject == row.subject)
        async with self._database.write() as connection:
            await connection.execute(sessions.delete().where(sessions.c.expires_at <= row.created_at))
            oldest = mine.order_by(sessions.c.created_at.desc(), sessions.c.id).offset(most - 1)
            for session_id in (await connection.execute(oldest)).scalars().all():
                await connection.execute(sessions.delete().where(sessions.c.id == session_id))
            values = {**asdict(row), "groups": None if row.groups is None else sorted(row.groups)}
            await connection.execute(sessions.insert().values(**values))
            change = Change("sessions.create", row.id, after=row.facts)
            await record_change(connection, author, change, row.created_at)

    async def session(self, session_id: str) -> SessionRow | None:
        """Return the session with this id; None if there is none."""
        async with self._database.read() as connection:
            return await _find(connection, session_id)

    async def sessions(self, subject: str | None, now: float) -> list[SessionRow]:
        """Return the sessions of a subject, or of all, that have not expired, the newest first."""
        query = sa.select(sessions).where(sessions.c.expires_at > now)
        if subject is not None:
            query = query.where(sessions.c.subject == subject)
        newest = query.order_by(sessions.c.created_at.desc(), sessions.c.id).limit(MOST_LISTED)
        async with self._database.read() as connection:
            return [_row(row) for row in (await connection.execute(newest)).mappings()]

    async def count(self, now: float) -> int:
        """Return the number of sessions that have not expired."""
        query = sa.select(sa.func.count()).select_from(sessions).where(sessions.c.expires_at > now)
        async with self._database.read() as connection:
            return int((await connection.execute(query)).scalar_one())

    async def remove(self, session_id: str, *, now: float, author: Author = CONTROLLER) -> None:
        """Remove a session; raises NotFoundError."""
        async with self._database.write() as connection:
            row = await _find(connection, session_id)
            if row is None:
                raise NotFoundError(f"no session {session_id!r}; `regroup sessions list` lists them")
            await connection.execute(sessions.delete().where(sessions.c.id == session_id))
            change = Change("sessions.revoke", session_id, before=row.facts)
            await record_change(connection, author, change, now)

    async def record_use(self, session_id: str, now: float) -> None:
        """Store the time of the last use."""
        async with self._database.write() as connection:
            await connection.execute(sessions.update().where(sessions.c.id == session_id).values(used_at=now))


async def _find(connection: AsyncConnection, session_id: str) -> SessionRow | None:
    row = (await connection.execute(sa.select(sessions).where(sessions.c.id == session_id))).mappings().one_or_none()
    return None if row is None else _row(row)


def _row(row: Mapping[Any, Any]) -> SessionRow:
    groups = row["groups"]
    values: dict[str, Any] = {**row, "groups": frozenset(groups) if isinstance(groups, list) else None}
    return SessionRow(**values)
