"""A long history in a database: jobs that ended or wait, and their metric points."""

import time
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from regroup.service.domain.states import JobState, Reason
from regroup.service.store.schema.tables import events, jobs, steps
from regroup.service.store.store import Store

PROJECTS = 20
QUEUED_SHARE = 0.02
_CHUNK = 2000
_POINTS_PER_JOB = 10_000
_ENDED = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


def job_id(number: int) -> str:
    """Return the id of a job of the history."""
    return f"job_{number:020}"


async def fill(url: str, spec: dict[str, Any], count: int, points: int, *, are_newest: bool = False) -> None:
    """Create the schema, `count` jobs of which some are queued, and `points` metric points of the first ones.

    With `are_newest`, the newest jobs have the points: those at the top of a list.
    """
    await (await Store.open(url)).close()
    engine = create_async_engine(url)
    async with engine.begin() as connection:
        for start in range(0, count, _CHUNK):
            numbers = range(start, min(count, start + _CHUNK))
            await connection.execute(jobs.insert(), [_row(number, spec, count) for number in numbers])
            states = [
                {
                    "job_id": job_id(number), "number": place, "key": None, "type": "state", "time_s": 1.0,
                    "generation": 0, "actor": "benchmark", "data": {"from": None, "to": "QUEUED"},
                }
                for number in numbers
                for place in (1, 2)
            ]  # fmt: skip
            await connection.execute(events.insert(), states)
        each = min(points, _POINTS_PER_JOB)
        order = jobs.c.id.desc() if are_newest else jobs.c.id
        holders = sa.select(jobs.c.id).order_by(order).limit(max(1, points // each)).subquery()
        await connection.execute(_insert_points(engine.dialect.name, holders, each))
        await connection.execute(sa.text("ANALYZE"))
    await engine.dispose()


def _row(number: int, spec: dict[str, Any], count: int) -> dict[str, Any]:
    is_queued = number >= count - int(count * QUEUED_SHARE)
    state = JobState.QUEUED if is_queued else _ENDED[number % len(_ENDED)]
    now, name, project = time.time(), f"nightly-{number}", f"p{number % PROJECTS}"
    return {
        "id": job_id(number), "project": project, "name": name, "owner": "benchmark",
        "spec": {**spec, "name": name, "project": project}, "storage_uri": "file:///nowhere", "state": state,
        "reason": Reason.SUBMITTED, "message": "", "version": 2, "revision": 2, "intents": {}, "conditions": [],
        "created_at": now, "queued_at": now, "finished_at": None if is_queued else now, "generation": 0, "step": 0,
        "step_rows": 0, "stall_s": 0.0, "rank_phases": {}, "supervisor_boot_id": "", "acked_seq": 0,
        "counted_at": None if is_queued else now, "usage_at": None if is_queued else now,
    }  # fmt: skip


def _insert_points(dialect: str, holders: sa.Subquery, each: int) -> sa.Insert:
    """Return the statement that makes all points in the database itself."""
    if dialect == "postgresql":
        counter = sa.func.generate_series(1, each).table_valued("number").render_derived()
    else:
        counter = sa.select(sa.literal(1).label("number")).cte("counter", recursive=True)
        counter = counter.union_all(sa.select(counter.c.number + 1).where(counter.c.number < each))
    number = counter.c.number
    values = {
        "job_id": holders.c.id, "generation": sa.literal(1), "step": number, "number": number,
        "time_s": sa.cast(number, sa.Double), "duration_s": sa.literal(0.5), "loss": sa.literal(2.0),
        "tokens": sa.literal(64), "samples": sa.literal(4), "extra": sa.literal("{}", sa.Text).cast(sa.JSON)
        if dialect == "postgresql" else sa.literal("{}", sa.Text),
    }  # fmt: skip
    chosen = sa.select(*(value.label(name) for name, value in values.items()))
    chosen = chosen.select_from(holders.join(counter, sa.true()))
    return steps.insert().from_select(list(values), chosen)
