"""Plans and predictions: the plan of a job, the predictions of each generation, and the steps to compare them with."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.store import history
from regroup.service.store.jobs.job_writer import JobWriter
from regroup.service.store.jobs.jobs import batched
from regroup.service.store.rows.records import Event, Lease, Step
from regroup.service.store.schema.json_values import plain
from regroup.service.store.schema.tables import generations, plans, predictions
from regroup.service.store.transactions import leases
from regroup.service.store.transactions.change_notifier import Changes
from regroup.service.store.transactions.database import Database

TRIAL = "trial"
"""Type of the events that report trials."""


_PER_STATEMENT = 500
"""Number of ids in one statement."""


@dataclass(frozen=True)
class NewestPrediction:
    """The predictions of a job's newest generation that has some."""

    generation: int
    data: Mapping[str, Any]


class PredictionStore:
    """The part of `Store` for predictions: `store.predictions`."""

    def __init__(self, database: Database, changes: Changes) -> None:
        self._database, self._changes = database, changes

    async def plan(self, job_id: str) -> dict[str, Any] | None:
        """Return the plan of the job; None if its spec contains the layout."""
        async with self._database.read() as connection:
            query = sa.select(plans.c.data).where(plans.c.job_id == job_id)
            return (await connection.execute(query)).scalar_one_or_none()

    async def without_plan(self, job_ids: Collection[str]) -> set[str]:
        """Return those of the jobs whose specs contain the layout. A plan is stored with its job, so none is added."""
        planned = sa.select(plans.c.job_id)
        async with self._database.read() as connection:
            return set(job_ids) - await _ids(connection, planned, plans.c.job_id, job_ids)

    async def complete(self, job_ids: Collection[str]) -> set[str]:
        """Return those of the jobs that have predictions of all their generations."""
        mine = sa.and_(predictions.c.job_id == generations.c.job_id, predictions.c.generation == generations.c.number)
        missing = sa.select(generations.c.job_id).where(~sa.exists().where(mine)).distinct()
        async with self._database.read() as connection:
            return set(job_ids) - await _ids(connection, missing, generations.c.job_id, job_ids)

    async def put(self, lease: Lease, job_id: str, generation: int, data: Mapping[str, Any]) -> None:
        """Store the predictions of a generation, unless it has some.

        Raises:
            PreconditionError: another control plane leads now.
        """
        async with self._database.write() as connection:
            await leases.check(connection, lease)
            here = sa.and_(predictions.c.job_id == job_id, predictions.c.generation == generation)
            if (await connection.execute(sa.select(predictions.c.generation).where(here))).first() is None:
                row = {"job_id": job_id, "generation": generation, "data": plain(data)}
                await connection.execute(predictions.insert().values(**row))

    async def note_trial(self, lease: Lease, job_id: str, data: Mapping[str, Any], *, now: float) -> None:
        """Record the result of a trial in the job's history.

        Raises:
            PreconditionError: another control plane leads now.
        """
        async with self._database.write() as connection:
            await leases.check(connection, lease)
            writer = await JobWriter.lock(connection, job_id)
            await writer.record(TRIAL, data, time_s=now, actor="controller")
        self._changes.announce(job_id)

    async def trials(self, job_id: str) -> list[Event]:
        """Return the results of trials, the oldest first."""
        async with self._database.read() as connection:
            return await history.events_of_type(connection, job_id, TRIAL)

    async def of_job(self, job_id: str) -> dict[int, dict[str, Any]]:
        """Return the predictions by generation."""
        query = sa.select(predictions.c.generation, predictions.c.data).where(predictions.c.job_id == job_id)
        async with self._database.read() as connection:
            return {int(number): data for number, data in await connection.execute(query)}

    async def newest(self, job_ids: Collection[str]) -> dict[str, NewestPrediction]:
        """Return for each job the predictions of the newest generation that has some."""
        columns = (predictions.c.job_id, predictions.c.generation, predictions.c.data)
        found = dict[str, NewestPrediction]()
        async with self._database.read() as connection:
            for some in batched(sorted(job_ids), _PER_STATEMENT):
                query = sa.select(*columns).where(predictions.c.job_id.in_(some)).order_by(predictions.c.generation)
                for job_id, generation, data in (await connection.execute(query)).tuples():
                    found[job_id] = NewestPrediction(generation, data)
        return found

    async def steps(self, job_id: str, generation: int, limit: int) -> list[Step]:
        """Return the last `limit` rows of a generation, in order."""
        async with self._database.read() as connection:
            return await history.newest_of_generation(connection, job_id, generation, limit)


async def _ids(
    connection: AsyncConnection, query: sa.Select[str], column: sa.Column[str], job_ids: Collection[str]
) -> set[str]:
    found = set[str]()
    for some in batched(sorted(job_ids), _PER_STATEMENT):
        found.update((await connection.execute(query.where(column.in_(some)))).scalars())
    return found
