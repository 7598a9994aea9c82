"""The progress of each generation of a job, read from its steps by their primary key."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.policy.lost_time import GenerationProgress
from regroup.service.store.schema.json_values import CorruptJson
from regroup.service.store.schema.tables import generations, ledgers, steps

PROGRESS = "progress"
"""Key of the progress in the stored ledger of a job whose steps were removed."""
PROGRESS_BATCH = 250
"""Number of jobs in one statement."""


async def progress_of(connection: AsyncConnection, job_id: str, first: int = 0) -> list[GenerationProgress]:
    """Return the progress of the generations from number `first` on, in order.

    The cost grows with the number of generations and of repeated steps, not with that of steps.
    """
    return (await progress_of_jobs(connection, {job_id: first}))[job_id]


async def progress_of_jobs(
    connection: AsyncConnection, firsts: Mapping[str, int]
) -> Mapping[str, list[GenerationProgress]]:
    """Return the progress of several jobs by their ids, each from its own generation on, in order."""
    found: dict[str, list[GenerationProgress]] = {job_id: [] for job_id in firsts}
    if not firsts:
        return found
    place = {"of_jobs": list(firsts), "first": min(firsts.values())}
    for row in (await connection.execute(_PROGRESS, place)).mappings():
        values = dict(row)
        job_id = str(values.pop("job_id"))
        if values["number"] >= firsts[job_id]:
            found[job_id].append(GenerationProgress(**values))
    without = [job_id for job_id, each in found.items() if all(one.first_step_s is None for one in each)]
    if not without:
        return found
    for job_id, stored in (await connection.execute(_LEDGERS, {"of_jobs": without})).tuples():
        if isinstance(stored, dict) and not isinstance(stored, CorruptJson):
            items: list[dict[str, Any]] = stored.get(PROGRESS) or []
            kept = {item["number"]: GenerationProgress(**item) for item in items}
            found[job_id] = [kept.get(each.number, each) for each in found[job_id]]
    return found


def _query() -> sa.Select[Any, Any, Any, Any, Any, Any, Any, Any]:
    later = generations.alias()
    newer = sa.and_(later.c.job_id == generations.c.job_id, later.c.number > generations.c.number)
    restart = sa.select(sa.func.min(later.c.start_step)).where(newer).correlate(generations).scalar_subquery()
    mine = sa.and_(steps.c.job_id == generations.c.job_id, steps.c.generation == generations.c.number)
    rows = sa.select(steps.c.time_s).where(mine).limit(1)

    def of_repeated(value: Any, condition: sa.ColumnElement[bool]) -> Any:
        repeated = sa.select(value).select_from(steps).where(mine, steps.c.step > restart, condition)
        return repeated.correlate(generations).scalar_subquery()

    duration_s = steps.c.duration_s
    return sa.select(
        generations.c.job_id,
        generations.c.number,
        generations.c.time_s.label("formed_s"),
        rows.order_by(steps.c.step).correlate(generations).scalar_subquery().label("first_step_s"),
        rows.order_by(steps.c.step.desc()).correlate(generations).scalar_subquery().label("last_step_s"),
        of_repeated(sa.func.count(), sa.true()).label("repeated"),
        of_repeated(sa.func.coalesce(sa.func.sum(duration_s), 0.0), sa.true()).label("repeated_s"),
        of_repeated(sa.func.count(), duration_s.is_(None)).label("untimed"),
    )


_PROGRESS = (
    _query()
    .where(
        generations.c.job_id.in_(sa.bindparam("of_jobs", expanding=True)),
        generations.c.number >= sa.bindparam("first"),
    )
    .order_by(generations.c.job_id, generations.c.number)
)
_LEDGERS = sa.select(ledgers.c.job_id, ledgers.c.data).where(
    ledgers.c.job_id.in_(sa.bindparam("of_jobs", expanding=True))
)
