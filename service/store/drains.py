"""Requests of users to drain nodes."""

import dataclasses
from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.store.records import DrainRow
from regroup.service.store.tables import drains


async def put(connection: AsyncConnection, row: DrainRow) -> DrainRow:
    """Insert a drain request, or update its deadline and reason. Return the stored row, with its original time."""
    stored = sa.select(drains).where(drains.c.node_id == row.node_id).with_for_update()
    if (before := (await connection.execute(stored)).mappings().one_or_none()) is not None:
        row = dataclasses.replace(row, requested_at=before["requested_at"])
        await connection.execute(drains.delete().where(drains.c.node_id == row.node_id))
    await connection.execute(drains.insert().values(**dataclasses.asdict(row)))
    return row


async def remove(connection: AsyncConnection, node_ids: Collection[str]) -> int:
    """Delete the drain requests for these nodes. Return the number of deleted rows."""
    return (await connection.execute(drains.delete().where(drains.c.node_id.in_(node_ids)))).rowcount


async def everything(connection: AsyncConnection) -> list[DrainRow]:
    """Return all drain requests, the oldest first."""
    rows = (await connection.execute(sa.select(drains).order_by(drains.c.requested_at))).mappings()
    return [DrainRow(**row) for row in rows]
