"""A value that differs after each change of a job that has not ended, a node or a project."""

from dataclasses import dataclass

import sqlalchemy as sa

from regroup.service.store.schema.notice_tables import notices
from regroup.service.store.schema.tables import LIVE, jobs
from regroup.service.store.transactions.database import Database

_RECENT = 100
"""Notices whose commit may follow that of a higher number."""


@dataclass(frozen=True)
class StateVersion:
    """Version of all jobs that have not ended, of nodes and of projects. Equal versions mean that nothing changed."""

    jobs: int
    revisions: int
    """Sum of the revisions of these jobs. Each change of a job increments its own."""
    newest_job: str
    newest_notice: int
    recent_notices: int
    """Number of the newest notices: one more if a commit was late."""


async def read_version(database: Database) -> StateVersion:
    """Return the present version. The cost grows with the jobs that have not ended."""
    live = sa.select(
        sa.func.count().label("count"),
        sa.func.coalesce(sa.func.sum(jobs.c.revision), 0).label("revisions"),
        sa.func.coalesce(sa.func.max(jobs.c.id), "").label("newest"),
    ).where(LIVE)
    newest = sa.select(sa.func.coalesce(sa.func.max(notices.c.number), 0)).scalar_subquery()
    recent = sa.select(sa.func.count()).where(notices.c.number > newest - _RECENT).scalar_subquery()
    counted = live.subquery()
    query = sa.select(
        counted.c.count, counted.c.revisions, counted.c.newest, newest.label("notice"), recent.label("recent")
    )
    async with database.read() as connection:
        row = (await connection.execute(query)).one()
    return StateVersion(int(row[0]), int(row[1]), str(row[2]), int(row[3]), int(row[4]))
