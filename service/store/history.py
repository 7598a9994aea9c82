"""The history of a job: events, steps, generations, incidents, checkpoints."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.store.rows.places import read_places
from regroup.service.store.rows.records import Checkpoint, Event, Generation, Incident, Step
from regroup.service.store.schema.tables import checkpoints, events, generations, incidents, steps

_STEP_COLUMNS = [column for column in steps.c if column.name != "job_id"]


async def events_after(connection: AsyncConnection, job_id: str, after: int, limit: int) -> list[Event]:
    """Return the events with a number above `after`, in order."""
    columns = [column for column in events.c if column.name != "key"]
    query = sa.select(*columns).where(events.c.job_id == job_id, events.c.number > after)
    rows = await connection.execute(query.order_by(events.c.number).limit(limit))
    return [Event(**row) for row in rows.mappings()]


async def events_of_jobs(connection: AsyncConnection, job_ids: Collection[str]) -> list[Event]:
    """Return all events of several jobs, those of each in order. The caller limits their number."""
    columns = [column for column in events.c if column.name != "key"]
    query = sa.select(*columns).where(events.c.job_id.in_(sorted(job_ids)))
    rows = await connection.execute(query.order_by(events.c.job_id, events.c.number))
    return [Event(**row) for row in rows.mappings()]


async def events_of_type(connection: AsyncConnection, job_id: str, kind: str) -> list[Event]:
    """Return all events of a type, in order."""
    columns = [column for column in events.c if column.name != "key"]
    query = sa.select(*columns).where(events.c.job_id == job_id, events.c.type == kind)
    return [Event(**row) for row in (await connection.execute(query.order_by(events.c.number))).mappings()]


async def step_rows_after(connection: AsyncConnection, job_id: str, after: int, limit: int) -> list[Step]:
    """Return the rows with a number above `after`, superseded ones too, in the order of insertion."""
    query = sa.select(*_STEP_COLUMNS).where(steps.c.job_id == job_id, steps.c.number > after)
    rows = await connection.execute(query.order_by(steps.c.number).limit(limit))
    return [Step(**row) for row in rows.mappings()]


async def committed_steps(connection: AsyncConnection, job_id: str, after_step: int, limit: int | None) -> list[Step]:
    """Return the committed steps, sorted by step: the rows that no later generation repeated."""
    later = generations.alias()
    superseded = (
        sa.select(sa.literal(1))
        .where(later.c.job_id == steps.c.job_id, later.c.number > steps.c.generation, later.c.start_step < steps.c.step)
        .exists()
    )
    query = sa.select(*_STEP_COLUMNS).where(steps.c.job_id == job_id, steps.c.step > after_step, ~superseded)
    rows = await connection.execute(query.order_by(steps.c.step, steps.c.generation).limit(limit))
    return [Step(**row) for row in rows.mappings()]


async def newest_of_generation(connection: AsyncConnection, job_id: str, generation: int, limit: int) -> list[Step]:
    """Return the last `limit` rows of a generation, superseded or not, in order."""
    query = sa.select(*_STEP_COLUMNS).where(steps.c.job_id == job_id, steps.c.generation == generation)
    rows = await connection.execute(query.order_by(steps.c.step.desc()).limit(limit))
    return [Step(**row) for row in rows.mappings()][::-1]


async def generations_of(connection: AsyncConnection, job_id: str) -> list[Generation]:
    """Return all generations, the oldest first."""
    columns = [column for column in generations.c if column.name != "job_id"]
    query = sa.select(*columns).where(generations.c.job_id == job_id).order_by(generations.c.number)
    return [_generation(row) for row in (await connection.execute(query)).mappings()]


async def newest_generation(connection: AsyncConnection, job_id: str) -> Generation | None:
    """Return the newest generation; None before the first one."""
    columns = [column for column in generations.c if column.name != "job_id"]
    query = sa.select(*columns).where(generations.c.job_id == job_id).order_by(generations.c.number.desc()).limit(1)
    row = (await connection.execute(query)).mappings().one_or_none()
    return None if row is None else _generation(row)


def _generation(row: sa.RowMapping) -> Generation:
    values: dict[str, Any] = {**row, "ranks": read_places(row["ranks"])}
    return Generation(**values)


async def incidents_of(connection: AsyncConnection, job_id: str) -> list[Incident]:
    """Return all incidents, the oldest first."""
    columns = [column for column in incidents.c if column.name != "job_id"]
    query = sa.select(*columns).where(incidents.c.job_id == job_id).order_by(incidents.c.number)
    return [Incident(**row) for row in (await connection.execute(query)).mappings()]


async def checkpoints_of(connection: AsyncConnection, job_id: str, removed: bool = False) -> list[Checkpoint]:
    """Return the checkpoints, sorted by step. With `removed`, include those that are no longer in storage."""
    columns = [column for column in checkpoints.c if column.name != "job_id"]
    # The stall of a snapshot is part of the step after it.
    following = sa.and_(
        steps.c.job_id == checkpoints.c.job_id,
        steps.c.generation == checkpoints.c.generation,
        steps.c.step == checkpoints.c.step + 1,
    )
    query = sa.select(*columns, steps.c.stall_s).outerjoin_from(checkpoints, steps, following)
    query = query.where(checkpoints.c.job_id == job_id)
    if not removed:
        query = query.where(checkpoints.c.removed_at.is_(None))
    rows = await connection.execute(query.order_by(checkpoints.c.step, checkpoints.c.generation))
    return [Checkpoint(**row) for row in rows.mappings()]


def usable(found: Iterable[Checkpoint], formed: Sequence[Generation]) -> list[Checkpoint]:
    """Return the checkpoints that count: every later generation started at or after their step."""
    return [
        checkpoint
        for checkpoint in found
        if all(later.start_step >= checkpoint.step for later in formed if later.number > checkpoint.generation)
    ]
