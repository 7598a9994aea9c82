"""Jobs of some states, of which only those are read again that have changed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from regroup.service.store.jobs.jobs import batched
from regroup.service.store.schema.tables import jobs
from regroup.service.store.transactions.database import Database

ValueT = TypeVar("ValueT")
_PER_STATEMENT = 100
"""Jobs that are read and converted at once. Other requests have their turn between two statements."""
_BETWEEN, _WITHIN = "\n", "\t"
"""Separators of the jobs in the text of all revisions, and of a job's id from its revision. They sort before any id."""


class RevisedJobs(Generic[ValueT]):
    """The jobs that match a condition, as values. A job is read again after its revision has changed.

    Each change of a job changes its revision, so the values are those of the database at the time of the read. The
    database returns the revisions of all jobs as one text: it is read and compared much faster than a row for each job.

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
        revised = jobs.c.id + _WITHIN + sa.cast(jobs.c.revision, sa.Text)
        self._revisions = sa.select(sa.func.aggregate_strings(revised, _BETWEEN)).where(condition)
        self._text = ""
        self._cached: Mapping[str, ValueT] = {}
        """Id with revision → value, sorted."""
        self._values: tuple[ValueT, ...] = ()

    async def read(self) -> tuple[ValueT, ...]:
        """Return the values, the oldest job first. It is the same tuple as before if no job has changed."""
        async with self._database.read_snapshot() as connection:
            text = (await connection.execute(self._revisions)).scalar_one() or ""
            if text == self._text:
                return self._values
            cached, fresh = self._cached, dict[str, ValueT]()
            found = sorted(text.split(_BETWEEN)) if text else []
            changed = [each.rpartition(_WITHIN)[0] for each in found if each not in cached]
            for some in batched(changed, _PER_STATEMENT):
                query = sa.select(jobs.c.id.label("_id"), jobs.c.revision.label("_revision"), *self._columns)
                for row in (await connection.execute(query.where(jobs.c.id.in_(some)))).mappings():
                    columns = dict(row)
                    name = f"{columns.pop('_id')}{_WITHIN}{columns.pop('_revision')}"
                    fresh[name] = self._convert(columns)
        merged = {**cached, **fresh}
        self._cached = {each: merged[each] for each in found if each in merged}
        self._text, self._values = text, tuple(self._cached.values())
        return self._values
