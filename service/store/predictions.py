"""What the store remembers of plans: what was chosen for a job and why, what was predicted of each generation, and the
steps that it is compared with."""

from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa

from regroup.service.store import history, leases
from regroup.service.store.change_notifier import Changes
from regroup.service.store.database import Database
from regroup.service.store.job_writer import JobWriter
from regroup.service.store.json_values import plain
from regroup.service.store.records import Event, Lease, Step
from regroup.service.store.tables import plans, predictions

TRIAL = "trial"
"""Type of the events that tell of trials."""


class PredictionStore:
    """A part of `Store`: `store.predictions`."""

    def __init__(self, database: Database, changes: Changes) -> None:
        self._database, self._changes = database, changes

    async def plan(self, job_id: str) -> dict[str, Any] | None:
        """What was planned of the job; None where its spec said the layout."""
        async with self._database.read() as connection:
            query = sa.select(plans.c.data).where(plans.c.job_id == job_id)
            return (await connection.execute(query)).scalar_one_or_none()

    async def put(self, lease: Lease, job_id: str, generation: int, data: Mapping[str, Any]) -> None:
        """Keep what was predicted of a generation; the first word counts.

        Raises:
            PreconditionError: another leads.
        """
        async with self._database.write() as connection:
            await leases.check(connection, lease)
            here = sa.and_(predictions.c.job_id == job_id, predictions.c.generation == generation)
            if (await connection.execute(sa.select(predictions.c.generation).where(here))).first() is None:
                row = {"job_id": job_id, "generation": generation, "data": plain(data)}
                await connection.execute(predictions.insert().values(**row))

    async def note_trial(self, lease: Lease, job_id: str, data: Mapping[str, Any], *, now: float) -> None:
        """Write into a job's history what a trial came to.

        Raises:
            PreconditionError: another leads.
        """
        async with self._database.write() as connection:
            await leases.check(connection, lease)
            writer = await JobWriter.lock(connection, job_id)
            await writer.record(TRIAL, data, time_s=now, actor="controller")
        self._changes.announce(job_id)

    async def trials(self, job_id: str) -> list[Event]:
        """What trials came to, the first one first."""
        async with self._database.read() as connection:
            return await history.events_of_type(connection, job_id, TRIAL)

    async def of_job(self, job_id: str) -> dict[int, dict[str, Any]]:
        """Generation → what was predicted of it."""
        query = sa.select(predictions.c.generation, predictions.c.data).where(predictions.c.job_id == job_id)
        async with self._database.read() as connection:
            return {int(number): data for number, data in await connection.execute(query)}

    async def newest(self, job_ids: Collection[str]) -> dict[str, dict[str, Any]]:
        """Job → what was predicted of its newest generation of which something was."""
        columns = (predictions.c.job_id, predictions.c.data)
        query = sa.select(*columns).where(predictions.c.job_id.in_(job_ids)).order_by(predictions.c.generation)
        async with self._database.read() as connection:
            return {str(job_id): data for job_id, data in await connection.execute(query)}

    async def steps(self, job_id: str, generation: int, limit: int) -> list[Step]:
        """The newest rows of a generation, in order."""
        async with self._database.read() as connection:
            return await history.newest_of_generation(connection, job_id, generation, limit)
