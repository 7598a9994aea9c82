"""The events of nodes: each key is stored once, and old faults are deleted."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.policy.detection.node_quarantine import WEIGHTS, NodeEvent, NodeEventKind
from regroup.service.store.json_values import plain
from regroup.service.store.tables import node_events

_FIELDS = ("key", "node", "kind", "time_s", "job_id", "actor", "message")


async def add(connection: AsyncConnection, happened: Sequence[NodeEvent]) -> list[NodeEvent]:
    """Insert the events with new keys. Return them."""
    keys = [event.key for event in happened]
    stored = set((await connection.execute(sa.select(node_events.c.key).where(node_events.c.key.in_(keys)))).scalars())
    fresh = list({event.key: event for event in happened if event.key not in stored}.values())
    if fresh:
        rows = [{name: plain(getattr(event, name)) for name in _FIELDS} for event in fresh]
        await connection.execute(node_events.insert(), rows)
    return fresh


async def forget(connection: AsyncConnection, before_s: float) -> None:
    """Delete faults before `before_s`. Orders of people (cordon, uncordon) are retained: some are still in effect."""
    old = sa.and_(node_events.c.time_s < before_s, node_events.c.kind.in_([kind.value for kind in WEIGHTS]))
    await connection.execute(node_events.delete().where(old))


async def all_events(connection: AsyncConnection) -> list[NodeEvent]:
    """Return all events in the order of insertion."""
    query = sa.select(*(node_events.c[name] for name in _FIELDS)).order_by(node_events.c.id)
    rows = (await connection.execute(query)).mappings()
    return [
        NodeEvent(**{name: row[name] for name in _FIELDS if name != "kind"}, kind=NodeEventKind(row["kind"]))
        for row in rows
    ]
