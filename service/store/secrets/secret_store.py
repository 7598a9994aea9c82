"""Storage of the secrets of projects: set, list, delete, each with its audit record; and reads for jobs."""

from collections.abc import Callable, Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.author import CONTROLLER, Author
from regroup.service.domain.credentials.keyring import key_id_of
from regroup.service.domain.errors import ConflictError, NotFoundError
from regroup.service.store.access.audit import Change, record_change
from regroup.service.store.schema.secret_tables import secrets
from regroup.service.store.secrets.reencryption import ReencryptionStore
from regroup.service.store.secrets.rows import SecretRow
from regroup.service.store.transactions.database import Database

MAX_SECRETS = 100
"""Number of secrets of one project."""
Seal = Callable[[int], str]
"""Returns the encrypted value for a version of the secret."""


class SecretStore:
    """The part of `Store` for secrets: `store.secrets`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.reencryption = ReencryptionStore(database)

    async def secrets(self, project: str, names: Collection[str] | None = None) -> list[SecretRow]:
        """Return the secrets of a project by name; all, or those of `names`."""
        query = sa.select(secrets).where(secrets.c.project == project)
        if names is not None:
            query = query.where(secrets.c.name.in_(sorted(names)))
        async with self._database.read() as connection:
            rows = (await connection.execute(query.order_by(secrets.c.name))).mappings()
            return [SecretRow.of(row) for row in rows]

    async def secret(self, project: str, name: str) -> SecretRow:
        """Return a secret; raises NotFoundError if the project does not have it."""
        async with self._database.read() as connection:
            return await _require(connection, project, name)

    async def set(self, project: str, name: str, seal: Seal, *, now: float, author: Author = CONTROLLER) -> SecretRow:
        """Create a secret, or replace its value.

        Args:
            project: its project.
            name: its name.
            seal: encrypts the value.
            now: Unix seconds.
            author: the sender.

        Raises:
            ConflictError: the project has the maximum number of secrets, or another request created this one at the
                same time.
        """
        try:
            async with self._database.write() as connection:
                before = await _find(connection, project, name, is_locked=True)
                if before is None:
                    row = await _create(connection, project, name, seal, now, author)
                else:
                    row = await _replace(connection, before, seal, now, author)
                facts = None if before is None else before.facts, row.facts
                await record_change(connection, author, Change("secrets.set", name, project, *facts), now)
                return row
        except exc.IntegrityError as error:
            raise ConflictError(
                f"another request created the secret {name!r} of project {project!r} at the same time; try again"
            ) from error.orig

    async def delete(self, project: str, name: str, *, now: float, author: Author = CONTROLLER) -> None:
        """Delete a secret; raises NotFoundError."""
        async with self._database.write() as connection:
            row = await _require(connection, project, name, is_locked=True)
            await connection.execute(secrets.delete().where(*_same(project, name)))
            await record_change(connection, author, Change("secrets.delete", name, project, row.facts), now)

    async def record_use(self, project: str, names: Collection[str], *, now: float) -> None:
        """Record that a job got the values of secrets."""
        used = secrets.update().where(secrets.c.project == project, secrets.c.name.in_(sorted(names)))
        async with self._database.write() as connection:
            await connection.execute(used.values(used_at=now))


async def _create(
    connection: AsyncConnection, project: str, name: str, seal: Seal, now: float, author: Author
) -> SecretRow:
    count = sa.select(sa.func.count()).select_from(secrets).where(secrets.c.project == project)
    if (await connection.execute(count)).scalar_one() >= MAX_SECRETS:
        raise ConflictError(f"project {project!r} has {MAX_SECRETS} secrets, the maximum; delete one")
    sealed = seal(1)
    row = SecretRow(project, name, 1, key_id_of(sealed), sealed, now, author.name, now, author.name)
    await connection.execute(secrets.insert().values(**vars(row)))
    return row


async def _replace(connection: AsyncConnection, before: SecretRow, seal: Seal, now: float, author: Author) -> SecretRow:
    version = before.version + 1
    sealed = seal(version)
    changes: dict[str, Any] = {
        "version": version, "key_id": key_id_of(sealed), "sealed": sealed, "updated_at": now, "updated_by": author.name,
    }  # fmt: skip
    await connection.execute(secrets.update().where(*_same(before.project, before.name)).values(**changes))
    return SecretRow(**{**vars(before), **changes})


async def _find(connection: AsyncConnection, project: str, name: str, *, is_locked: bool = False) -> SecretRow | None:
    query = sa.select(secrets).where(*_same(project, name))
    row = (await connection.execute(query.with_for_update() if is_locked else query)).mappings().one_or_none()
    return None if row is None else SecretRow.of(row)


async def _require(connection: AsyncConnection, project: str, name: str, *, is_locked: bool = False) -> SecretRow:
    row = await _find(connection, project, name, is_locked=is_locked)
    if row is None:
        raise NotFoundError(
            f"project {project!r} has no secret {name!r}; `regroup secret list --project {project}` lists its secrets"
        )
    return row


def _same(project: str, name: str) -> tuple[sa.ColumnElement[bool], ...]:
    return secrets.c.project == project, secrets.c.name == name
