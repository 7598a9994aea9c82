"""The jobs that may have allocations, as the controller's loop reads them: small columns of all of them at once."""

import sqlalchemy as sa

from regroup.service.domain.states import JobState
from regroup.service.store.schema.tables import LIVE, jobs
from regroup.service.store.transactions.database import Database

_ALLOCATED = [state for state in JobState if state.has_allocations]


class LiveJobs:
    """Reads of the controller. Its passes read no spec of a job that runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def has_other_writers(self) -> bool:
        """True if other processes may write to these jobs (PostgreSQL)."""
        return not self._database.single_process

    async def states(self) -> dict[str, JobState]:
        """Return the states of the jobs by id, the oldest first."""
        query = sa.select(jobs.c.id, jobs.c.state).where(LIVE, jobs.c.state.in_(_ALLOCATED))
        async with self._database.read() as connection:
            rows = await connection.execute(query.order_by(jobs.c.created_at, jobs.c.id))
            return {row.id: JobState(row.state) for row in rows}

    async def revisions(self) -> dict[str, int]:
        """Return the revisions of the jobs by id. Each write to a job gives it another one."""
        query = sa.select(jobs.c.id, jobs.c.revision).where(LIVE, jobs.c.state.in_(_ALLOCATED))
        async with self._database.read() as connection:
            return {row.id: int(row.revision) for row in await connection.execute(query)}
