"""Sums over all jobs that have ended, for the metrics. Each job is added once, and its rows may be removed later."""

import json
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.states import JobState
from regroup.service.store.jobs.jobs import batched
from regroup.service.store.rows.job_rows import JOB_COLUMNS, job_row
from regroup.service.store.rows.records import JobRow
from regroup.service.store.rows.sums import Sums, Totals
from regroup.service.store.schema.tables import checkpoints, jobs, metric_totals
from regroup.service.store.transactions.database import Database
from regroup.service.store.transactions.inserts import add_if_absent

ENDED_JOBS = "ended_jobs"
"""Stored sum: number of counted jobs by state."""
CHECKPOINT_BYTES = "checkpoint_bytes"
"""Stored sum: bytes of the checkpoints of counted jobs in storage."""
REMOVED_ROWS = "removed_rows"
"""Stored sum: number of rows that were removed after their retention, by table."""
RETAINED_TABLES = ("events", "hook_deliveries", "idempotency", "jobs", "node_events", "steps")
"""Tables from which rows are removed after their retention."""
_NONE: Mapping[str, JobRow] = {}
_PER_STATEMENT = 500
_MOST_UNCOUNTED = 10_000
"""Number of jobs that one scrape reads at most: those that have not ended, and the newest that have."""


class TotalsStore:
    """The part of `Store` for sums over all jobs: `store.totals`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, now: float, cached: Mapping[str, JobRow] = _NONE) -> Totals:
        """Return the sums of counted jobs, and all other jobs, as of one moment.

        Args:
            now: Unix seconds.
            cached: rows of jobs that were read before. Those that have not changed are not read again.
        """
        revisions = sa.select(jobs.c.id, jobs.c.revision).where(jobs.c.counted_at.is_(None)).order_by(jobs.c.id.desc())
        held = sa.select(sa.func.coalesce(sa.func.sum(checkpoints.c.size_bytes), 0)).where(
            checkpoints.c.removed_at.is_(None),
            checkpoints.c.job_id.in_(sa.select(jobs.c.id).where(jobs.c.counted_at.is_(None))),
        )
        async with self._database.read_snapshot() as connection:
            rows = await connection.execute(sa.select(metric_totals))
            sums = {(row.metric, tuple(json.loads(row.labels))): float(row.value) for row in rows}
            found = (await connection.execute(revisions.limit(_MOST_UNCOUNTED))).all()
            changed = [row.id for row in found if row.id not in cached or cached[row.id].revision != row.revision]
            read = {**cached, **await _read_jobs(connection, changed)}
            held_bytes = int((await connection.execute(held)).scalar_one())
        others = tuple(read[row.id] for row in found)
        oldest = min((job.queued_at for job in others if job.state is JobState.QUEUED), default=now)
        counted = {state: int(sums.get((ENDED_JOBS, (state.value,)), 0)) for state in JobState}
        for job in others:
            counted[job.state] += 1
        return Totals(
            jobs=counted,
            sums=sums,
            uncounted=others,
            checkpoint_bytes=held_bytes + int(sums.get((CHECKPOINT_BYTES, ()), 0)),
            queue_wait_s=max(0.0, now - oldest),
        )

    async def uncounted(self, finished_before: float, limit: int) -> list[JobRow]:
        """Return jobs that ended before this time and are in no sum yet."""
        query = sa.select(*JOB_COLUMNS).where(
            # Only jobs that have ended have a time. Without the sum, SQLite would search all of them by it.
            jobs.c.counted_at.is_(None),
            jobs.c.finished_at + 0 < finished_before,
        )
        async with self._database.read() as connection:
            rows = (await connection.execute(query.order_by(jobs.c.id).limit(limit))).mappings()
            return [job_row(row) for row in rows]

    async def count(self, job_id: str, sums: Sums, *, now: float) -> bool:
        """Add what an ended job adds to the sums, and mark it; return False if it was counted before."""
        async with self._database.write() as connection:
            here = sa.and_(jobs.c.id == job_id, jobs.c.counted_at.is_(None))
            state = (await connection.execute(sa.select(jobs.c.state).where(here).with_for_update())).scalar()
            if state is None:
                return False
            held_bytes = await checkpoint_bytes(connection, job_id)
            await add(connection, {**sums, (ENDED_JOBS, (str(state),)): 1, (CHECKPOINT_BYTES, ()): held_bytes})
            await connection.execute(jobs.update().where(here).values(counted_at=now))
        return True


async def _read_jobs(connection: AsyncConnection, job_ids: Sequence[str]) -> dict[str, JobRow]:
    found = dict[str, JobRow]()
    for some in batched(job_ids, _PER_STATEMENT):
        rows = (await connection.execute(sa.select(*JOB_COLUMNS).where(jobs.c.id.in_(some)))).mappings()
        found |= {str(row["id"]): job_row(row) for row in rows}
    return found


async def checkpoint_bytes(connection: AsyncConnection, job_id: str) -> int:
    """Return the bytes of a job's checkpoints in storage."""
    held = sa.select(sa.func.coalesce(sa.func.sum(checkpoints.c.size_bytes), 0))
    here = held.where(checkpoints.c.job_id == job_id, checkpoints.c.removed_at.is_(None))
    return int((await connection.execute(here)).scalar_one())


async def add(connection: AsyncConnection, sums: Sums) -> None:
    """Add to the stored sums. In order of their keys, so that two servers never wait for each other."""
    for (metric, labels), value in sorted(sums.items()):
        key = {"metric": metric, "labels": json.dumps(labels)}
        here = sa.and_(*(metric_totals.c[name] == part for name, part in key.items()))
        increase = metric_totals.update().where(here).values(value=metric_totals.c.value + value)
        if (await connection.execute(increase)).rowcount:
            continue
        if not await add_if_absent(connection, metric_totals, **key, value=value):
            await connection.execute(increase)  # another server was first
