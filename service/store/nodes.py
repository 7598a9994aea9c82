"""Persistent state of nodes: their events, and requests of users to drain them."""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.author import CONTROLLER, Author
from regroup.service.domain.versions import etag_of
from regroup.service.policy.detection.node_quarantine import WEIGHTS, NodeEvent, NodeEventKind
from regroup.service.store.access.audit import Change, record_change
from regroup.service.store.notices.notice_rows import Notice, Topic, record_notices
from regroup.service.store.rows.records import DrainRow, Lease
from regroup.service.store.schema.json_values import plain
from regroup.service.store.schema.tables import drains, node_events
from regroup.service.store.transactions import leases
from regroup.service.store.transactions.change_notifier import Changes
from regroup.service.store.transactions.database import Database

_KINDS = frozenset(NodeEventKind)
ORDERS = frozenset({NodeEventKind.CORDONED, NodeEventKind.UNCORDONED})
"""Events that are orders of people."""
_FIELDS = ("key", "node", "kind", "time_s", "job_id", "actor", "message")


class NodeStore:
    """The part of `Store` for nodes: `store.nodes`."""

    def __init__(self, database: Database, changes: Changes) -> None:
        self._database, self._changes = database, changes

    async def events(self) -> list[NodeEvent]:
        """Return all events in the order of insertion."""
        query = sa.select(*(node_events.c[name] for name in _FIELDS)).order_by(node_events.c.id)
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [
            NodeEvent(**{name: row[name] for name in _FIELDS if name != "kind"}, kind=NodeEventKind(row["kind"]))
            for row in rows
            if row["kind"] in _KINDS  # a newer server may have written others, and a damaged row has no kind
        ]

    async def record_faults(
        self, lease: Lease, faults: Sequence[NodeEvent], *, forget_before_s: float
    ) -> list[NodeEvent]:
        """Store faults, each key once, and delete faults before `forget_before_s`. Return the new ones.

        Orders of people (cordon, uncordon) are retained: some are still in effect.

        Raises:
            PreconditionError: another process leads.
        """
        old = sa.and_(node_events.c.time_s < forget_before_s, node_events.c.kind.in_([kind.value for kind in WEIGHTS]))
        async with self._database.write() as connection:
            await leases.check(connection, lease)
            fresh = await _add(connection, faults)
            await connection.execute(node_events.delete().where(old))
        for fault in fresh:
            self._changes.announce(fault.node)
        return fresh

    async def record_order(self, order: NodeEvent, *, author: Author = CONTROLLER) -> None:
        """Store a user's order to cordon or uncordon a node."""
        action = "nodes.cordon" if order.kind is NodeEventKind.CORDONED else "nodes.uncordon"
        async with self._database.write() as connection:
            before = await _newest_order(connection, order.node)
            after = order_facts(order)
            await _add(connection, [order])
            change = Change(action, order.node, before=before, after=after, etag_before=etag_of(before))
            await record_change(connection, author, change, order.time_s)
        self._changes.announce(order.node)

    async def drains(self) -> list[DrainRow]:
        """Return all drain requests, the oldest first."""
        async with self._database.read() as connection:
            rows = (await connection.execute(sa.select(drains).order_by(drains.c.requested_at))).mappings()
            return [DrainRow(**row) for row in rows]

    async def request_drain(self, row: DrainRow, *, now: float = 0.0, author: Author = CONTROLLER) -> DrainRow:
        """Store a drain request, or update its deadline and reason. Return the stored row, with its original time."""
        stored = sa.select(drains).where(drains.c.node_id == row.node_id).with_for_update()
        async with self._database.write() as connection:
            if (before := (await connection.execute(stored)).mappings().one_or_none()) is not None:
                row = dataclasses.replace(row, requested_at=before["requested_at"])
                await connection.execute(drains.delete().where(drains.c.node_id == row.node_id))
            after = dataclasses.asdict(row)
            await connection.execute(drains.insert().values(**after))
            await record_notices(connection, [Notice(Topic.NODE, "drain", now, node=row.node)])
            change = Change("nodes.drain", row.node_id, before=None if before is None else dict(before), after=after)
            await record_change(connection, author, change, now)
        return row

    async def delete_drains(self, node_ids: Collection[str], *, now: float = 0.0, author: Author = CONTROLLER) -> int:
        """Delete the drain requests for these nodes. Return the number of deleted rows."""
        mine = drains.c.node_id.in_(node_ids)
        async with self._database.write() as connection:
            rows = (await connection.execute(sa.select(drains).where(mine))).mappings().all()
            for row in rows:
                change = Change("nodes.undrain", row["node_id"], before=dict(row))
                await record_change(connection, author, change, now)
            count = (await connection.execute(drains.delete().where(mine))).rowcount
            await record_notices(connection, [Notice(Topic.NODE, "undrain", now, node=row["node"]) for row in rows])
        return count


async def _newest_order(connection: AsyncConnection, node: str) -> dict[str, Any] | None:
    """Return the last order of a person for a node, as an audit record shows it."""
    orders = sa.and_(node_events.c.node == node, node_events.c.kind.in_(sorted(ORDERS)))
    query = sa.select(node_events).where(orders).order_by(node_events.c.id.desc()).limit(1)
    row = (await connection.execute(query)).mappings().first()
    return None if row is None else {"order": row["kind"], "reason": row["message"], "time_s": row["time_s"]}


def order_facts(order: NodeEvent) -> dict[str, Any]:
    """Return what an audit record shows of an order for a node. The ETag of the node is that of its last order."""
    return {"order": str(order.kind), "reason": order.message, "time_s": order.time_s}


async def _add(connection: AsyncConnection, happened: Sequence[NodeEvent]) -> list[NodeEvent]:
    """Insert the events with new keys. Return them."""
    keys = [event.key for event in happened]
    stored = set((await connection.execute(sa.select(node_events.c.key).where(node_events.c.key.in_(keys)))).scalars())
    fresh = list({event.key: event for event in happened if event.key not in stored}.values())
    if fresh:
        rows = [{name: plain(getattr(event, name)) for name in _FIELDS} for event in fresh]
        await connection.execute(node_events.insert(), rows)
        changed = [Notice(Topic.NODE, event.kind, event.time_s, node=event.node) for event in fresh]
        await record_notices(connection, changed)
    return fresh
