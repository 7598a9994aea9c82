"""The limit of waiting jobs of one identity, checked in the transaction that submits a job."""

import time
from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.errors import QueueLimitError
from regroup.service.domain.states import JobState
from regroup.service.store.schema.tables import jobs

_WAITING = (JobState.QUEUED, JobState.SUSPENDED)
"""States of jobs that count: a suspended job queues again when it is resumed."""
_LOCK = 0x7175_6575
"""Namespace of PostgreSQL's advisory locks for submissions of one identity."""
_AUTHOR = sa.bindparam("author", type_=sa.String)
_LOCK_AUTHOR = sa.select(sa.func.pg_advisory_xact_lock(_LOCK, sa.func.hashtext(_AUTHOR)))
_COUNT = sa.select(sa.func.count()).select_from(
    sa.select(jobs.c.id)
    .where(jobs.c.author == _AUTHOR, jobs.c.state.in_(_WAITING))
    .limit(sa.bindparam("most", type_=sa.Integer))
    .subquery()
)
_SHARE = 10
"""A server admits this part of the remaining jobs, one tenth, before it counts again."""
_VALID_S = 1.0
_RETAINED = 1000


class QueueLimits:
    """Admits jobs up to the limit of their authors.

    A count reads all waiting jobs of an author, and other servers wait for it. So it is valid for one second and a
    tenth of the jobs that the limit still allows. One server never exceeds the limit. Several servers can together
    exceed it by a tenth of what was left for each of them.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._admitted: dict[tuple[str, int], tuple[float, int]] = {}
        """Author and limit → end of the count's validity, and number of jobs that can be admitted without another."""

    async def admit(self, connection: AsyncConnection, author: str, limit: int, count: int) -> int:
        """Return how many of `count` further jobs of an author its limit allows.

        After a count, other submissions of the author wait until the transaction ends.
        """
        key, now = (author, limit), self._clock()
        until, allowed = self._admitted.get(key, (0.0, 0))
        if now < until and count <= allowed:
            self._admitted[key] = until, allowed - count
            return count
        room = max(0, limit - await _waiting_jobs(connection, author, limit))
        admitted = min(count, room)
        self._remember(key, now + _VALID_S, (room - admitted) // _SHARE)
        return admitted

    def _remember(self, key: tuple[str, int], until: float, allowed: int) -> None:
        self._admitted.pop(key, None)
        self._admitted[key] = until, allowed
        if len(self._admitted) > _RETAINED:
            del self._admitted[next(iter(self._admitted))]


def queue_limit_error(author: str, limit: int) -> QueueLimitError:
    """Return the error for an identity that may not submit another job."""
    return QueueLimitError(
        f"{limit} jobs of {author} are queued or suspended, the largest number for one identity; wait until some "
        "start, or cancel some. An operator can raise REGROUP_QUEUED_JOBS_PER_IDENTITY"
    )


async def _waiting_jobs(connection: AsyncConnection, author: str, limit: int) -> int:
    """Return the number of queued and suspended jobs of an author, at most `limit`."""
    if connection.dialect.name == "postgresql":  # SQLite has one writer at a time
        await connection.execute(_LOCK_AUTHOR, {"author": author})
    return int((await connection.execute(_COUNT, {"author": author, "most": limit})).scalar_one())
