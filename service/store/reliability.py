"""Incidents and faults of nodes in a window of time, of all jobs."""

from collections.abc import Collection, Mapping

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.policy.detection.node_quarantine import WEIGHTS
from regroup.service.policy.reliability import Interruption
from regroup.service.store.jobs.jobs import batched
from regroup.service.store.schema.tables import generations, incidents, jobs, node_events
from regroup.service.store.transactions.database import Database

_PER_STATEMENT = 500


class ReliabilityStore:
    """The part of `Store` for reports over the incidents of all jobs: `store.reliability`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def incidents(
        self, from_s: float, to_s: float, projects: frozenset[str] | None, limit: int
    ) -> list[Interruption]:
        """Return up to `limit` incidents that were recorded in the window, newest first.

        Args:
            projects: only jobs of these projects; None for all.
        """
        earlier = incidents.alias()
        number = (
            sa.select(sa.func.count())
            .where(earlier.c.job_id == incidents.c.job_id, earlier.c.number <= incidents.c.number)
            .scalar_subquery()
        )
        columns = (incidents.c.job_id, incidents.c.cause, incidents.c.time_s, incidents.c.data)
        query = (
            sa.select(*columns, number.label("ordinal"), jobs.c.name, jobs.c.project, jobs.c.step_duration_s)
            .join(jobs, jobs.c.id == incidents.c.job_id)
            .where(incidents.c.time_s >= from_s, incidents.c.time_s < to_s)
        )
        if projects is not None:
            query = query.where(jobs.c.project.in_(projects))
        async with self._database.read_snapshot() as connection:
            rows = (await connection.execute(query.order_by(incidents.c.time_s.desc()).limit(limit))).all()
            sizes = await _world_sizes(connection, {row.job_id for row in rows})
        return [
            Interruption(
                row.job_id, row.name, row.project, row.ordinal, row.cause, row.time_s, data,
                sizes.get((row.job_id, data.get("generation"))), row.step_duration_s or 0.0,
            )
            for row in rows
            for data in [row.data if isinstance(row.data, dict) else {}]
        ]  # fmt: skip

    async def goodputs(self, job_ids: Collection[str]) -> Mapping[str, float]:
        """Return the goodput of those jobs that have one, by id."""
        found = dict[str, float]()
        async with self._database.read() as connection:
            for some in batched(sorted(job_ids), _PER_STATEMENT):
                query = sa.select(jobs.c.id, jobs.c.goodput).where(jobs.c.id.in_(some), jobs.c.goodput.is_not(None))
                found |= {row.id: row.goodput for row in await connection.execute(query)}
        return found

    async def node_faults(self, from_s: float, to_s: float, limit: int) -> list[tuple[str, str, float]]:
        """Return node, kind and time of up to `limit` faults of nodes in the window, newest first."""
        query = sa.select(node_events.c.node, node_events.c.kind, node_events.c.time_s).where(
            node_events.c.time_s >= from_s,
            node_events.c.time_s < to_s,
            node_events.c.kind.in_([kind.value for kind in WEIGHTS]),
        )
        async with self._database.read() as connection:
            rows = await connection.execute(query.order_by(node_events.c.time_s.desc()).limit(limit))
            return [(row.node, row.kind, row.time_s) for row in rows]


async def _world_sizes(connection: AsyncConnection, job_ids: Collection[str]) -> dict[tuple[str, object], int]:
    """Return the number of ranks of each generation of these jobs."""
    found = dict[tuple[str, object], int]()
    for some in batched(sorted(job_ids), _PER_STATEMENT):
        query = sa.select(generations.c.job_id, generations.c.number, generations.c.world_size)
        rows = await connection.execute(query.where(generations.c.job_id.in_(some)))
        found |= {(row.job_id, row.number): row.world_size for row in rows}
    return found
