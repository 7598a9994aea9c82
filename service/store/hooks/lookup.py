"""Lookup of one hook of a project."""

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.errors import NotFoundError
from regroup.service.store.rows.hook_rows import HookRow
from regroup.service.store.schema.hook_tables import hooks


async def find_hook(connection: AsyncConnection, project: str, hook_id: str, *, is_locked: bool = False) -> HookRow:
    """Return a hook; raises NotFoundError if the project does not have it."""
    query = sa.select(hooks).where(hooks.c.id == hook_id, hooks.c.project == project)
    if is_locked:
        query = query.with_for_update(key_share=True)  # deliveries may be written at the same time
    row = (await connection.execute(query)).mappings().one_or_none()
    if row is None:
        raise NotFoundError(f"project {project!r} has no hook {hook_id!r}; `regroup hooks list` lists its hooks")
    return HookRow.of(row)
