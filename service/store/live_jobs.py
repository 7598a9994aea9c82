"""The jobs that may have allocations, as the controller's loop reads them: small columns of all of them at once."""

import asyncio
import dataclasses
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.states import JobState
from regroup.service.store.jobs.jobs import batched, with_ids
from regroup.service.store.rows.records import Allocation, JobRow
from regroup.service.store.schema.tables import LIVE, allocations, jobs
from regroup.service.store.transactions.connection_share import without_limit
from regroup.service.store.transactions.database import Database

_PER_STATEMENT = 500
"""Number of ids in one statement."""
_MOST_READS = 5
_ALLOCATION_COLUMNS = [allocations.c[each.name] for each in dataclasses.fields(Allocation)]
_ALLOCATED = [state for state in JobState if state.has_allocations]


class RowVersion(NamedTuple):
    """Counters of a job's row."""

    revision: int
    """Each write to the job gives it another one."""
    version: int
    """Number of its events: progress does not change it."""


class LiveJobs:
    """Reads of the controller. Its passes read no spec of a job that runs.

    Only the leader writes the allocations of live jobs, so it reads them once until it writes them.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows: dict[str, JobRow] = {}
        """The rows as of the last `rows`."""
        self._allocations: dict[str, Sequence[Allocation]] = {}
        self._unread: set[str] = set()
        """Jobs whose allocations may have changed since all were read."""
        self._has_all = False
        """True if the allocations of all other jobs are known: those without an entry have none."""
        self._changed: set[str] = set()
        """Jobs whose allocations changed since the last read of all began."""
        self._reads: dict[str, object] = {}
        """Job id → its read that began last."""
        self._reading_all = asyncio.Lock()

    @property
    def has_other_writers(self) -> bool:
        """True if other processes may write to these jobs (PostgreSQL)."""
        return not self._database.single_process

    async def states(self) -> dict[str, JobState]:
        """Return the states of the jobs by id, the oldest first."""
        query = sa.select(jobs.c.id, jobs.c.state).where(LIVE, jobs.c.state.in_(_ALLOCATED))
        async with self._database.read() as connection:
            rows = await connection.execute(query.order_by(jobs.c.created_at, jobs.c.id))
            return {job_id: JobState(state) for job_id, state in rows.tuples()}

    async def versions(self) -> Mapping[str, RowVersion]:
        """Return the versions of the jobs by id."""
        query = sa.select(jobs.c.id, jobs.c.revision, jobs.c.version).where(LIVE, jobs.c.state.in_(_ALLOCATED))
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).tuples()
            return {job_id: RowVersion(revision, version) for job_id, revision, version in rows}

    async def allocation_names(self) -> Mapping[str, str]:
        """Return the names of all live allocations, each with its job."""
        query = sa.select(allocations.c.name, allocations.c.job_id).where(allocations.c.released_at.is_(None))
        async with self._database.read() as connection:
            return dict((await connection.execute(query)).tuples().all())

    async def rows(self) -> list[JobRow]:
        """Return the rows of the jobs, the oldest first. Only rows that have changed since the last call are read."""
        query = sa.select(jobs.c.id, jobs.c.revision).where(LIVE, jobs.c.state.in_(_ALLOCATED))
        async with self._database.read() as connection:
            revisions = dict((await connection.execute(query.order_by(jobs.c.created_at, jobs.c.id))).tuples().all())
            kept = {job_id: row for job_id, row in self._rows.items() if row.revision == revisions.get(job_id)}
            for some in batched([job_id for job_id in revisions if job_id not in kept], _PER_STATEMENT):
                kept |= {row.id: row for row in await with_ids(connection, some)}
        self._rows = kept
        return [kept[job_id] for job_id in revisions if job_id in kept and kept[job_id].state.has_allocations]

    async def allocations(self, job_id: str) -> Sequence[Allocation]:
        """Return the live allocations of a job that this process leads."""
        if self._has_all and job_id not in self._unread:
            return self._allocations.get(job_id, ())
        if (cached := self._allocations.get(job_id)) is not None:
            return cached
        read = self._reads[job_id] = object()
        async with self._database.read() as connection:
            found = await read_allocations(connection, [job_id])
        if self._reads.get(job_id) is read:
            self._allocations[job_id] = found
            self._unread.discard(job_id)
        return found

    async def all_allocations(self) -> list[Allocation]:
        """Return the live allocations of all jobs that this process leads, those of a job in order."""
        async with self._reading_all:
            for _ in range(_MOST_READS):
                if self._has_all and not self._unread:
                    return [row for rows in self._allocations.values() for row in rows]
                with without_limit():
                    await self._read_unread()
        async with self._database.read() as connection:  # jobs change faster than they are read
            return list(await read_allocations(connection))

    async def _read_unread(self) -> None:
        """Read the allocations that are not known. Those of jobs that change during the read remain unknown."""
        requested = set(self._unread) if self._has_all else None
        changed = self._changed = set[str]()
        async with self._database.read() as connection:
            rows = await read_allocations(connection, requested)
        by_job = defaultdict[str, list[Allocation]](list)
        for row in rows:
            by_job[row.job_id].append(row)
        if self._changed is not changed:
            return  # another leader may have written all of them
        self._allocations |= {job_id: found for job_id, found in by_job.items() if job_id not in changed}
        self._unread, self._has_all = changed.copy(), True

    def drop_allocations(self, job_id: str) -> None:
        """Forget the allocations of a job after they changed, or when the job is no longer followed."""
        self._allocations.pop(job_id, None)
        self._reads.pop(job_id, None)
        self._unread.add(job_id)
        self._changed.add(job_id)

    def drop_all_allocations(self) -> None:
        """Forget all allocations: another leader may have written them."""
        self._allocations.clear()
        self._reads.clear()
        self._unread.clear()
        self._changed, self._has_all = set(), False


async def read_allocations(connection: AsyncConnection, job_ids: Collection[str] | None = None) -> Sequence[Allocation]:
    """Return the live allocations, of these jobs or of all."""
    query = sa.select(*_ALLOCATION_COLUMNS).where(allocations.c.released_at.is_(None)).order_by(allocations.c.id)
    if job_ids is None:
        return [Allocation.from_row(row) for row in (await connection.execute(query)).mappings()]
    found = list[Allocation]()
    for some in batched(sorted(job_ids), _PER_STATEMENT):
        rows = await connection.execute(query.where(allocations.c.job_id.in_(some)))
        found += [Allocation.from_row(row) for row in rows.mappings()]
    return found
