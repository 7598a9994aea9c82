"""Records of the course of a job. The cost grows with generations and events, not with steps."""

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.job_events import EventType
from regroup.service.store import history
from regroup.service.store.jobs import jobs
from regroup.service.store.jobs.mirror_ticks import ticks_of
from regroup.service.store.rows.places import read_places
from regroup.service.store.rows.records import Event
from regroup.service.store.rows.story import GenerationHead, StepMark, StoryRecords
from regroup.service.store.schema.tables import events, generations, steps
from regroup.service.store.transactions.database import Database

MAX_STATES, MAX_OTHERS = 5000, 1000
"""Numbers of events that are read: the newest ones."""
_ELSEWHERE = (
    EventType.STATE, EventType.PHASE, EventType.GENERATION, EventType.INCIDENT, EventType.CHECKPOINT,
    EventType.CHECKPOINT_REMOVED,
)  # fmt: skip
"""Types that have tables of their own, or that no story needs."""


class StoryStore:
    """The part of `Store` for stories of jobs: `store.stories`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, job_id: str, points: int) -> StoryRecords:
        """Return the records of a job, with at most `points` steps; raise NotFoundError if there is no such job."""
        async with self._database.read_snapshot() as connection:
            job = await jobs.get(connection, job_id)
            return StoryRecords(
                job=job,
                states=await _newest(connection, job_id, events.c.type == EventType.STATE, MAX_STATES),
                others=await _newest(connection, job_id, events.c.type.not_in(_ELSEWHERE), MAX_OTHERS),
                generations=await _heads(connection, job_id),
                incidents=await history.incidents_of(connection, job_id),
                checkpoints=await history.checkpoints_of(connection, job_id, removed=True),
                steps=await _sample(connection, job_id, job.step_rows, points),
                mirrors=(await ticks_of(connection, job_id)).ticks,
            )

    async def ranks(self, job_id: str, numbers: Collection[int]) -> dict[int, Sequence[dict[str, Any]]]:
        """Return the places of the ranks of generations, by the number of the generation."""
        query = sa.select(generations.c.number, generations.c.ranks).where(
            generations.c.job_id == job_id, generations.c.number.in_(sorted(numbers))
        )
        async with self._database.read() as connection:
            rows = await connection.execute(query)
            return {row.number: read_places(row.ranks) for row in rows}


async def _newest(
    connection: AsyncConnection, job_id: str, condition: sa.ColumnElement[bool], limit: int
) -> list[Event]:
    columns = [column for column in events.c if column.name != "key"]
    query = sa.select(*columns).where(events.c.job_id == job_id, condition)
    rows = await connection.execute(query.order_by(events.c.number.desc()).limit(limit))
    return [Event(**row) for row in rows.mappings()][::-1]


async def _heads(connection: AsyncConnection, job_id: str) -> list[GenerationHead]:
    """Return the generations, each with its first and last step: three rows that an index finds."""
    mine = sa.and_(steps.c.job_id == generations.c.job_id, steps.c.generation == generations.c.number)

    def of_step(value: sa.Column[Any], order: sa.ColumnElement[Any], name: str) -> sa.Label[Any]:
        row = sa.select(value).where(mine).order_by(order).limit(1)
        return row.correlate(generations).scalar_subquery().label(name)

    query = sa.select(
        generations.c.number,
        generations.c.time_s.label("formed_s"),
        *(generations.c[name] for name in ("layout", "world_size", "start_step", "restore", "cause")),
        of_step(steps.c.time_s, steps.c.step.asc(), "first_step_s"),
        of_step(steps.c.step, steps.c.step.desc(), "last_step"),
        of_step(steps.c.time_s, steps.c.step.desc(), "last_step_s"),
    ).where(generations.c.job_id == job_id)
    rows = await connection.execute(query.order_by(generations.c.number))
    return [GenerationHead(**row) for row in rows.mappings()]


async def _sample(connection: AsyncConnection, job_id: str, rows: int, points: int) -> list[StepMark]:
    """Return every n-th row, so that there are at most `points`, and the last one."""
    stride = max(1, -(-rows // points))
    numbers = range(rows, 0, -stride)
    query = sa.select(steps.c.generation, steps.c.step, steps.c.time_s).where(
        steps.c.job_id == job_id, steps.c.number.in_(numbers)
    )
    found = await connection.execute(query.order_by(steps.c.number))
    return [StepMark(generation, step, time_s) for generation, step, time_s in found]
