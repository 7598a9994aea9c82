"""Storage of hooks: create, read, change, delete; each change with its audit record."""

import dataclasses
import hashlib
from typing import Any

import sqlalchemy as sa

from regroup.service.domain.author import CONTROLLER, Author
from regroup.service.domain.errors import ConflictError
from regroup.service.domain.versions import etag_of
from regroup.service.policy.hooks.destinations import hide_secrets
from regroup.service.store.access.audit import Change, record_change
from regroup.service.store.hooks.deliveries import DeliveryStore
from regroup.service.store.hooks.lookup import find_hook
from regroup.service.store.rows.hook_rows import HookRow
from regroup.service.store.schema.hook_tables import hooks
from regroup.service.store.schema.json_values import plain
from regroup.service.store.transactions.database import Database

MAX_HOOKS = 20
"""Number of hooks of one project. Each event is compared with all of them."""


class HookStore:
    """The part of `Store` for hooks: `store.hooks`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.deliveries = DeliveryStore(database)

    async def hooks(self, project: str) -> list[HookRow]:
        """Return the hooks of a project, the oldest first."""
        query = sa.select(hooks).where(hooks.c.project == project).order_by(hooks.c.created_at, hooks.c.id)
        async with self._database.read() as connection:
            return [HookRow.of(row) for row in (await connection.execute(query)).mappings()]

    async def hook(self, project: str, hook_id: str) -> HookRow:
        """Return a hook; raises NotFoundError if the project does not have it."""
        async with self._database.read() as connection:
            return await find_hook(connection, project, hook_id)

    async def create(self, row: HookRow, *, author: Author = CONTROLLER) -> None:
        """Create a hook. It gets the events of transactions that begin after this one.

        Raises:
            ConflictError: the project has the maximum number of hooks.
        """
        count = sa.select(sa.func.count()).select_from(hooks).where(hooks.c.project == row.project)
        async with self._database.write() as connection:
            if (await connection.execute(count)).scalar_one() >= MAX_HOOKS:
                raise ConflictError(f"project {row.project!r} has {MAX_HOOKS} hooks, the maximum; remove one")
            await connection.execute(hooks.insert().values(**_columns(row)))
            change = Change("hooks.create", row.id, row.project, after=_facts(row))
            await record_change(connection, author, change, row.created_at)

    async def change(
        self,
        project: str,
        hook_id: str,
        action: str,
        *,
        now: float,
        author: Author = CONTROLLER,
        **changes: Any,
    ) -> HookRow:
        """Change columns of a hook; raises NotFoundError.

        Args:
            project: its project.
            hook_id: its id.
            action: name of the change in the audit record.
            now: Unix seconds.
            author: the sender.
            changes: new values of columns.
        """
        async with self._database.write() as connection:
            before = await find_hook(connection, project, hook_id, is_locked=True)
            await connection.execute(hooks.update().where(hooks.c.id == hook_id).values(**changes))
            after = await find_hook(connection, project, hook_id)
            change = Change(action, hook_id, project, _facts(before), _facts(after))
            await record_change(connection, author, change, now)
            return after

    async def rotate(
        self, project: str, hook_id: str, secret: str, *, former_until: float, now: float, author: Author = CONTROLLER
    ) -> HookRow:
        """Replace the key of a hook; raises NotFoundError. The former one also signs until `former_until`."""
        async with self._database.write() as connection:
            before = await find_hook(connection, project, hook_id, is_locked=True)
            changes = {"secret": secret, "former_secret": before.secret, "former_until": former_until}
            await connection.execute(hooks.update().where(hooks.c.id == hook_id).values(**changes))
            facts = _facts(before), {**_facts(before), "former_until": former_until}
            await record_change(connection, author, Change("hooks.rotate", hook_id, project, *facts), now)
            return await find_hook(connection, project, hook_id)

    async def delete(self, project: str, hook_id: str, *, now: float, author: Author = CONTROLLER) -> None:
        """Delete a hook with its deliveries; raises NotFoundError. An attempt in progress ends."""
        async with self._database.write() as connection:
            row = await find_hook(connection, project, hook_id, is_locked=True)
            await connection.execute(hooks.delete().where(hooks.c.id == hook_id))
            await record_change(connection, author, Change("hooks.delete", hook_id, project, _facts(row)), now)


def _columns(row: HookRow) -> dict[str, Any]:
    return {
        **dataclasses.asdict(row),
        "recipients": list(row.recipients),
        "events": list(row.events),
        "labels": dict(row.labels),
    }


def _facts(row: HookRow) -> dict[str, Any]:
    """Return the content of a hook for an audit record, without secrets."""
    facts = _columns(row)
    del facts["secret"], facts["former_secret"]
    if row.url is not None:
        # A change of a hidden part must be visible, too.
        fingerprint = hashlib.sha256(row.url.encode()).hexdigest()[:12]
        facts |= {"url": hide_secrets(row.kind, row.url), "url_sha256": fingerprint}
    return facts


def hook_etag(row: HookRow) -> str:
    """Return the entity tag of a hook: that of the fields which an audit record shows."""
    return etag_of(plain(_facts(row)))
