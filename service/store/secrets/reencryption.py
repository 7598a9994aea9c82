"""Encryption of stored secrets with another key, in batches: those of projects, and the signing keys of hooks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.author import CONTROLLER, Author
from regroup.service.domain.credentials.keyring import KEY_ID_DIGITS, KeyringError, Owner, key_id_of, sealed_prefix
from regroup.service.store.access.audit import Change, record_change
from regroup.service.store.rows.hook_rows import HookRow
from regroup.service.store.schema.hook_tables import hooks
from regroup.service.store.schema.secret_tables import secrets
from regroup.service.store.secrets.rows import SecretRow
from regroup.service.store.transactions.database import Database

Reseal = Callable[[str, Owner], str]
"""Returns the stored value of an owner, encrypted with the current key. Raises KeyringError if it cannot be read."""
PLAIN = ""
"""Key of stored values that are not encrypted, in `KeyUse`."""


@dataclass(frozen=True)
class Batch:
    """The result of one batch."""

    encrypted: int
    """Number of values that were encrypted again."""
    unreadable: int
    """Number of values that no key of the server decrypts."""
    last: tuple[str, ...] | None
    """Last row that was read; None if none is left."""


class ReencryptionStore:
    """Values that the current key did not encrypt."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def uses_of_keys(self) -> dict[str, int]:
        """Return the number of stored values by the id of their key; `PLAIN` for those that are not encrypted."""
        of_projects = sa.select(secrets.c.key_id.label("key_id"), sa.func.count()).group_by(secrets.c.key_id)
        found = sa.union_all(of_projects, *(_count_by_key(column) for column in _HOOK_COLUMNS))
        counts = dict[str, int]()
        async with self._database.read() as connection:
            for key_id, count in await connection.execute(found):
                counts[str(key_id)] = counts.get(str(key_id), 0) + int(count)
        return counts

    async def reseal_secrets(
        self, key_id: str, reseal: Reseal, after: Sequence[str], limit: int, *, now: float, author: Author = CONTROLLER
    ) -> Batch:
        """Encrypt a batch of secrets of projects with the current key.

        Args:
            key_id: id of the current key.
            reseal: encrypts a value again.
            after: `last` of the previous batch; empty for the first one.
            limit: maximum number of rows.
            now: Unix seconds.
            author: the sender.
        """
        place = sa.tuple_(secrets.c.project, secrets.c.name)
        query = sa.select(secrets).where(secrets.c.key_id != key_id)
        if after:
            query = query.where(place > sa.tuple_(*after))
        query = query.order_by(secrets.c.project, secrets.c.name).limit(limit).with_for_update()
        encrypted, unreadable = 0, 0
        async with self._database.write() as connection:
            rows = [SecretRow.of(row) for row in (await connection.execute(query)).mappings()]
            for row in rows:
                try:
                    sealed = reseal(row.sealed, row.owner)
                except KeyringError:
                    unreadable += 1
                    continue
                same = secrets.c.project == row.project, secrets.c.name == row.name
                changes = {"sealed": sealed, "key_id": key_id_of(sealed)}
                await connection.execute(secrets.update().where(*same).values(**changes))
                encrypted += 1
            await _record(connection, key_id, "secrets", encrypted, author, now)
        return Batch(encrypted, unreadable, (rows[-1].project, rows[-1].name) if len(rows) == limit else None)

    async def reseal_hooks(
        self,
        key_id: str,
        reseal: Reseal,
        after: Sequence[str],
        limit: int,
        *,
        now: float,
        author: Author = CONTROLLER,
        only_plain: bool = False,
    ) -> Batch:
        """Encrypt a batch of the signing keys of hooks with the current key. See `reseal_secrets`.

        With `only_plain`, encrypt only those that are not encrypted.
        """
        done = sealed_prefix("" if only_plain else key_id)
        query = sa.select(hooks).where(sa.or_(*(_is_other(column, done) for column in _HOOK_COLUMNS)))
        if after:
            query = query.where(hooks.c.id > after[0])
        query = query.order_by(hooks.c.id).limit(limit).with_for_update(key_share=True)
        encrypted, unreadable = 0, 0
        async with self._database.write() as connection:
            rows = [HookRow.of(row) for row in (await connection.execute(query)).mappings()]
            for row in rows:
                changes, failed = _resealed(row, done, reseal)
                unreadable += failed
                encrypted += len(changes)
                if changes:
                    await connection.execute(hooks.update().where(hooks.c.id == row.id).values(**changes))
            await _record(connection, key_id, "hooks", encrypted, author, now)
        return Batch(encrypted, unreadable, (rows[-1].id,) if len(rows) == limit else None)


_HOOK_COLUMNS = (hooks.c.secret, hooks.c.former_secret)


def _count_by_key(column: sa.ColumnElement[Any]) -> sa.Select[Any, int]:
    """Return the query for the number of values in a column of hooks, by the id of their key."""
    start, length = len(sealed_prefix("")) + 1, KEY_ID_DIGITS
    is_encrypted = column.startswith(sealed_prefix(""), autoescape=True)
    key_id = sa.case((is_encrypted, sa.func.substr(column, start, length)), else_=PLAIN)
    return sa.select(key_id.label("key_id"), sa.func.count()).where(column.is_not(None)).group_by(key_id)


def _is_other(column: sa.ColumnElement[Any], prefix: str) -> sa.ColumnElement[bool]:
    return sa.and_(column.is_not(None), sa.not_(column.startswith(prefix, autoescape=True)))


def _resealed(row: HookRow, done: str, reseal: Reseal) -> tuple[dict[str, str], int]:
    """Return the new values of a hook's columns, and the number of values that cannot be read.

    Values that begin with `done` stay as they are.
    """
    changes, unreadable = dict[str, str](), 0
    for name in ("secret", "former_secret"):
        stored: str | None = getattr(row, name)
        if stored is None or stored.startswith(done):
            continue
        try:
            changes[name] = reseal(stored, row.owner)
        except KeyringError:
            unreadable += 1
    return changes, unreadable


async def _record(
    connection: AsyncConnection, key_id: str, table: str, encrypted: int, author: Author, now: float
) -> None:
    """Write the audit record of a batch, in its transaction."""
    if encrypted:
        change = Change("secrets.reencrypt", key_id, None, after={"table": table, "values": encrypted})
        await record_change(connection, author, change, now)
