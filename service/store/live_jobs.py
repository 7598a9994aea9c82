"""The jobs that may have allocations, as the controller's loop reads them: small columns of all of them at once."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.states import JobState
from regroup.service.store.rows.records import Allocation
from regroup.service.store.schema.tables import LIVE, allocations, jobs
from regroup.service.store.transactions.database import Database

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
        self._allocations: dict[str, Sequence[Allocation]] = {}
        self._reads: dict[str, object] = {}
        """Job id → its read that began last."""

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

    async def allocations(self, job_id: str) -> Sequence[Allocation]:
        """Return the live allocations of a job that this process leads."""
        if (cached := self._allocations.get(job_id)) is not None:
            return cached
        read = self._reads[job_id] = object()
        async with self._database.read() as connection:
            found = await read_allocations(connection, job_id)
        if self._reads.get(job_id) is read:
            self._allocations[job_id] = found
        return found

    def drop_allocations(self, job_id: str) -> None:
        """Forget the allocations of a job after they changed, or when the job is no longer followed."""
        self._allocations.pop(job_id, None)
        self._reads.pop(job_id, None)

    def drop_all_allocations(self) -> None:
        """Forget all allocations: another leader may have written them."""
        self._allocations.clear()
        self._reads.clear()


async def read_allocations(connection: AsyncConnection, job_id: str | None = None) -> list[Allocation]:
    """Return the live allocations, of one job or of all."""
    names = [field.name for field in dataclasses.fields(Allocation)]
    query = sa.select(*(allocations.c[name] for name in names)).where(allocations.c.released_at.is_(None))
    if job_id is not None:
        query = query.where(allocations.c.job_id == job_id)
    rows = (await connection.execute(query.order_by(allocations.c.id))).mappings()
    return [Allocation.from_row(row) for row in rows]
