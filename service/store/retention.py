"""Removal of history after its retention, in transactions of bounded size."""

import json
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.states import JobState
from regroup.service.policy.detection.node_quarantine import MEMORY_S, NodeEventKind
from regroup.service.store.jobs.generation_progress import PROGRESS, progress_of
from regroup.service.store.jobs.totals import CHECKPOINT_BYTES, ENDED_JOBS, REMOVED_ROWS, add, checkpoint_bytes
from regroup.service.store.rows.records import Ledger
from regroup.service.store.schema.tables import (
    allocations,
    checkpoints,
    events,
    idempotency,
    jobs,
    ledgers,
    node_events,
    steps,
)
from regroup.service.store.transactions.database import Database

BATCH_ROWS = 5000
"""Number of rows that one transaction removes at most."""
_KEPT_EVENTS = ("state", "held")
"""Types of events that are kept with the job: the account of its time needs them. Their number is small."""
_TERMINAL = [state for state in JobState if state.is_terminal]
_ORDERS = (NodeEventKind.CORDONED.value, NodeEventKind.UNCORDONED.value)


class RetentionStore:
    """The part of `Store` that removes history: `store.retention`. Each method removes at most one batch."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def remove_idempotency_keys(self, created_before: float) -> int:
        """Remove stored responses; return their number."""
        old = sa.select(idempotency.c.scope, idempotency.c.key).where(idempotency.c.created_at <= created_before)
        async with self._database.write() as connection:
            found = (await connection.execute(old.limit(BATCH_ROWS))).all()
            for scope, key in found:
                row = sa.and_(idempotency.c.scope == scope, idempotency.c.key == key)
                await connection.execute(idempotency.delete().where(row))
            return await _counted(connection, "idempotency", len(found))

    async def remove_node_events(self, now: float) -> int:
        """Remove events of nodes that no longer count: old ones, except the newest order of each node."""
        newest = sa.select(sa.func.max(node_events.c.id)).where(node_events.c.kind.in_(_ORDERS))
        old = sa.select(node_events.c.id).where(
            node_events.c.time_s < now - MEMORY_S, node_events.c.id.not_in(newest.group_by(node_events.c.node))
        )
        async with self._database.write() as connection:
            found = (await connection.execute(old.limit(BATCH_ROWS))).scalars().all()
            if found:
                await connection.execute(node_events.delete().where(node_events.c.id.in_(found)))
            return await _counted(connection, "node_events", len(found))

    async def with_old_events(self, finished_before: float, limit: int) -> list[str]:
        """Return jobs that ended before this time and have all their events."""
        return await self._jobs(jobs.c.events_removed_at.is_(None), finished_before, limit)

    async def with_old_steps(self, finished_before: float, limit: int) -> list[str]:
        """Return jobs that ended before this time and have their steps."""
        return await self._jobs(jobs.c.steps_removed_at.is_(None), finished_before, limit)

    async def old_jobs(self, finished_before: float, limit: int, retain: Collection[str]) -> list[str]:
        """Return jobs that ended before this time, without those in `retain` and those with pinned checkpoints."""
        mine = sa.and_(checkpoints.c.job_id == jobs.c.id, checkpoints.c.pinned.is_(True))
        pinned = sa.select(sa.literal(1)).where(mine).exists()
        return await self._jobs(sa.and_(~pinned, jobs.c.id.not_in(retain)), finished_before, limit)

    async def remove_events(self, job_id: str, now: float) -> bool:
        """Remove a batch of a job's events, except changes of its state; return whether there are more.

        The job is marked when none is left.
        """
        gone = sa.and_(events.c.job_id == job_id, events.c.type.not_in(_KEPT_EVENTS))
        async with self._database.write() as connection:
            found = sa.select(events.c.number).where(gone).order_by(events.c.number).limit(BATCH_ROWS)
            last = (await connection.execute(sa.select(sa.func.max(found.subquery().c.number)))).scalar()
            removed = 0
            if last is not None:
                removed = (await connection.execute(events.delete().where(gone, events.c.number <= last))).rowcount
            if removed < BATCH_ROWS:
                await connection.execute(jobs.update().where(jobs.c.id == job_id).values(events_removed_at=now))
            await _counted(connection, "events", removed)
        return removed == BATCH_ROWS

    async def remove_steps(self, job_id: str, ledger: Ledger | None, now: float) -> bool:
        """Remove a batch of a job's steps; return whether there are more. The job is marked when none is left.

        Args:
            ledger: ledger of the job, stored before its first step is removed; None if it cannot be computed.
        """
        mine = steps.c.job_id == job_id
        async with self._database.write() as connection:
            has_ledger = sa.select(ledgers.c.job_id).where(ledgers.c.job_id == job_id)
            if ledger is not None and (await connection.execute(has_ledger)).first() is None:
                data = {
                    **asdict(ledger),
                    "samples_hash": str(ledger.samples_hash),  # larger than a JSON number
                    PROGRESS: [asdict(each) for each in await progress_of(connection, job_id)],
                }
                await connection.execute(ledgers.insert().values(job_id=job_id, data=json.loads(json.dumps(data))))
            first = sa.select(sa.func.min(steps.c.number)).where(mine)
            begin, removed = (await connection.execute(first)).scalar(), 0
            if begin is not None:
                batch = steps.delete().where(mine, steps.c.number < begin + BATCH_ROWS)
                removed = (await connection.execute(batch)).rowcount
            is_more = begin is not None and (await connection.execute(first)).scalar() is not None
            if not is_more:
                await connection.execute(jobs.update().where(jobs.c.id == job_id).values(steps_removed_at=now))
            await _counted(connection, "steps", removed)
        return is_more

    async def remove_job(self, job_id: str) -> int:
        """Remove the row of a job whose steps and events were removed before, and all that belongs to it.

        Its sums and its use of devices are kept. Without effect before they are stored.
        """
        is_kept = sa.and_(jobs.c.counted_at.is_not(None), jobs.c.usage_at.is_not(None))
        here = sa.and_(jobs.c.id == job_id, jobs.c.state.in_(_TERMINAL), is_kept)
        async with self._database.write() as connection:
            state = (await connection.execute(sa.select(jobs.c.state).where(here).with_for_update())).scalar()
            if state is None:
                return 0
            # The sums of these two are what exists now; all others count what has happened.
            held_bytes = await checkpoint_bytes(connection, job_id)
            await add(connection, {(ENDED_JOBS, (str(state),)): -1, (CHECKPOINT_BYTES, ()): -held_bytes})
            await connection.execute(allocations.delete().where(allocations.c.job_id == job_id))
            await connection.execute(jobs.delete().where(here))
            return await _counted(connection, "jobs", 1)

    async def _jobs(self, condition: Any, finished_before: float, limit: int) -> list[str]:
        query = sa.select(jobs.c.id).where(
            condition,
            jobs.c.finished_at < finished_before,  # only jobs that have ended have a time
            jobs.c.counted_at.is_not(None),
        )
        async with self._database.read() as connection:
            return list((await connection.execute(query.order_by(jobs.c.finished_at).limit(limit))).scalars())


async def _counted(connection: AsyncConnection, table: str, removed: int) -> int:
    if removed:
        await add(connection, {(REMOVED_ROWS, (table,)): removed})
    return removed
