"""Jobs of some states, of which only those are read again that have changed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from regroup.service.store.jobs.jobs import batched
from regroup.service.store.schema.tables import jobs
from regroup.service.store.transactions.database import Database

ValueT = TypeVar("ValueT")
_PER_STATEMENT = 500


class RevisedJobs(Generic[ValueT]):
    """The jobs that match a condition, as values. A job is read again after its revision has changed.

    Each change of a job changes its revision, so the values are those of the database at the time of the read.

    Args:
        columns: columns of the values.
        convert: makes a value of a row. All callers get the same one.
    """

    def __init__(
        self,
        database: Database,
        condition: sa.ColumnElement[bool] | sa.TextClause,
        columns: Sequence[sa.ColumnElement[Any]],
        convert: Callable[[Mapping[Any, Any]], ValueT],
    ) -> None:
        self._database, self._columns, self._convert = database, columns, convert
        # Sorted after the read: with an order, SQLite reads all jobs by their ids instead of using the index.
        self._revisions = sa.select(jobs.c.id, jobs.c.revision).where(condition)
        self._cached: Mapping[str, tuple[int, ValueT]] = {}

    async def read(self) -> list[ValueT]:
        """Return the values, the oldest job first."""
        cached, fresh = self._cached, dict[str, tuple[int, ValueT]]()
        async with self._database.read_snapshot() as connection:
            found = sorted((row.id, row.revision) for row in await connection.execute(self._revisions))
            changed = [each for each, revision in found if each not in cached or cached[each][0] != revision]
            for some in batched(changed, _PER_STATEMENT):
                query = sa.select(jobs.c.id.label("_id"), jobs.c.revision.label("_revision"), *self._columns)
                for row in (await connection.execute(query.where(jobs.c.id.in_(some)))).mappings():
                    columns = dict(row)
                    job_id, revision = columns.pop("_id"), columns.pop("_revision")
                    fresh[job_id] = revision, self._convert(columns)
        self._cached = {job_id: fresh.get(job_id) or cached[job_id] for job_id, _ in found}
        return [value for _, value in self._cached.values()]
