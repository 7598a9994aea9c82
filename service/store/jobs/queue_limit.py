"""The limit of waiting jobs of one identity, checked in the transaction that submits a job."""

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.errors import QueueLimitError
from regroup.service.domain.states import JobState
from regroup.service.store.schema.tables import jobs

_WAITING = (JobState.QUEUED, JobState.SUSPENDED)
"""States of jobs that count: a suspended job queues again when it is resumed."""
_LOCK = 0x7175_6575
"""Namespace of PostgreSQL's advisory locks for submissions of one identity."""


async def check_queue_limit(connection: AsyncConnection, author: str, limit: int) -> None:
    """Check that an identity may submit one more job. Its other submissions wait until the transaction ends.

    Raises:
        QueueLimitError: `limit` or more of its jobs are queued or suspended.
    """
    if connection.dialect.name == "postgresql":  # SQLite has one writer at a time
        await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK, sa.func.hashtext(author))))
    waiting = sa.select(jobs.c.id).where(jobs.c.author == author, jobs.c.state.in_(_WAITING)).limit(limit).subquery()
    count = (await connection.execute(sa.select(sa.func.count()).select_from(waiting))).scalar_one()
    if count >= limit:
        raise QueueLimitError(
            f"{limit} jobs of {author} are queued or suspended, the largest number for one identity; wait until some "
            "start, or cancel some. An operator can raise REGROUP_QUEUED_JOBS_PER_IDENTITY"
        )
