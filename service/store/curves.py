"""Curves of metrics, with few points for many steps.

Curves of one job fold neighbouring steps in the database. Curves of many jobs read single steps at equal distances, so
that their cost does not grow with the number of steps.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.store.rows.curves import CurvePoint, Curves, CurveSelection, SampledStep, Spread
from regroup.service.store.schema.tables import generations, jobs, steps
from regroup.service.store.transactions.database import Database

STEP_S = "step_s"
TOKENS_PER_S = "tokens_per_s"
_COLUMNS = {
    "loss": steps.c.loss,
    "validation_loss": steps.c.validation_loss,
    "grad_norm": steps.c.grad_norm,
    "learning_rate": steps.c.learning_rate,
    STEP_S: steps.c.duration_s,
    "stall_s": steps.c.stall_s,
    "tokens": steps.c.tokens,
    TOKENS_PER_S: steps.c.tokens / sa.func.nullif(steps.c.duration_s, 0.0),
}
"""Metric → its value in the row of a step. All others are in the column `extra`."""
_REPEATED_LINES = 8
"""All repeated lines together have at most this many times the points of the committed one."""


class CurveStore:
    """The part of `Store` for curves: `store.curves`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, job_id: str, selection: CurveSelection) -> Curves:
        """Return curves of a job. Each point stands for the same number of steps."""
        async with self._database.read_snapshot() as connection:
            first, last = await _range(connection, job_id, selection)
            width = max(1, -(-(last - first + 1) // selection.points))
            query = _query(connection.dialect.name, job_id, selection, first, last, width)
            rows = (await connection.execute(query)).all()
        return Curves(width, tuple(_point(row, selection) for row in rows))

    async def sample(
        self, job_ids: Sequence[str], metrics: Sequence[str], points: int
    ) -> Mapping[str, Sequence[SampledStep]]:
        """Return committed steps of many jobs at equal distances, with the first and the newest; two queries."""
        found: dict[str, dict[int, SampledStep]] = {job_id: {} for job_id in job_ids}
        async with self._database.read_snapshot() as connection:
            places = _places((await connection.execute(_committed_ranges(job_ids))).all(), points)
            if places:
                query = _sample_query(connection.dialect.name, places, metrics)
                for job_id, step, time_s, *values in await connection.execute(query):
                    named = {
                        name: float(value) for name, value in zip(metrics, values, strict=True) if value is not None
                    }
                    found[job_id][step] = SampledStep(int(step), float(time_s), named)
        return {job_id: [of_job[step] for step in sorted(of_job)] for job_id, of_job in found.items()}


async def _range(connection: AsyncConnection, job_id: str, selection: CurveSelection) -> tuple[int, int]:
    """Return the first and the last step of the selection that is stored; an empty range without steps."""
    stored = sa.select(sa.func.min(steps.c.step), sa.func.max(steps.c.step)).where(steps.c.job_id == job_id)
    least, most = (await connection.execute(stored)).one()
    if least is None:
        return 1, 0
    last = most if selection.to_step is None else min(most, selection.to_step)
    return max(least, selection.from_step), last


def _query(
    dialect: str, job_id: str, selection: CurveSelection, first: int, last: int, width: int
) -> sa.Select[*tuple[Any, ...]]:
    # A later generation repeats the steps above its start. Window: the generations after this one.
    later = sa.func.min(generations.c.start_step).over(order_by=generations.c.number, rows=(1, None))
    kept = sa.select(generations.c.number, later.label("until")).where(generations.c.job_id == job_id).subquery()
    line = sa.case((steps.c.step > kept.c.until, steps.c.generation), else_=0)
    place = (steps.c.step - first) // width
    folded: list[sa.ColumnElement[Any]] = [line, sa.func.max(steps.c.step), sa.func.max(steps.c.time_s)]
    for name in selection.metrics:
        value = sa.cast(_value(dialect, name), sa.Double)
        folded += [sa.func.avg(value), sa.func.min(value), sa.func.max(value)]
    return (
        sa.select(*folded)
        .select_from(steps.outerjoin(kept, kept.c.number == steps.c.generation))
        .where(steps.c.job_id == job_id, steps.c.step.between(first, last))
        .group_by(line, place)
        .order_by(line, place)
        .limit(selection.points * (1 + _REPEATED_LINES))
    )


def _committed_ranges(job_ids: Sequence[str]) -> sa.Select[*tuple[Any, ...]]:
    """Return id, first stored step and newest committed step of each job."""
    first = sa.select(sa.func.min(steps.c.step)).where(steps.c.job_id == jobs.c.id).scalar_subquery()
    return sa.select(jobs.c.id, first, jobs.c.step).where(jobs.c.id.in_(job_ids))


def _places(ranges: Sequence[sa.Row[*tuple[Any, ...]]], points: int) -> list[tuple[str, int]]:
    """Return pairs of a job and a step: up to `points` steps of each job, at equal distances."""
    found = list[tuple[str, int]]()
    for job_id, first, last in ranges:
        if first is not None and first <= last:
            count = min(points, last - first + 1)
            distance = (last - first) / max(1, count - 1)
            found += [(job_id, first + round(number * distance)) for number in range(count)]
    return found


def _sample_query(
    dialect: str, places: Sequence[tuple[str, int]], metrics: Sequence[str]
) -> sa.Select[*tuple[Any, ...]]:
    # The newest committed step limits the places: of two rows of one step, the one of the later generation counts.
    requested = _requested_rows(dialect, places)
    values = [sa.cast(_value(dialect, name), sa.Double) for name in metrics]
    return (
        sa.select(steps.c.job_id, steps.c.step, steps.c.time_s, *values)
        .select_from(
            requested.join(steps, sa.and_(steps.c.job_id == requested.c.job_id, steps.c.step == requested.c.step))
        )
        .order_by(steps.c.generation)
    )


def _requested_rows(dialect: str, places: Sequence[tuple[str, int]]) -> sa.Subquery:
    """Return the places as rows. All are in few parameters, because both databases limit the number of these."""
    if dialect == "postgresql":
        job_ids = sa.cast([job_id for job_id, _ in places], sa.ARRAY(sa.String))
        numbers = sa.cast([step for _, step in places], sa.ARRAY(sa.BigInteger))
        pairs = sa.func.unnest(job_ids, numbers).table_valued("job_id", "step").render_derived("pairs")
        return sa.select(pairs.c.job_id, pairs.c.step).subquery()
    pairs = sa.func.json_each(json.dumps(places)).table_valued("value")
    parts = (
        sa.func.json_extract(pairs.c.value, f"$[{index}]").label(name) for index, name in enumerate(("job_id", "step"))
    )
    return sa.select(*parts).subquery()


def _value(dialect: str, name: str) -> sa.ColumnElement[Any]:
    if name in _COLUMNS:
        return _COLUMNS[name]
    found = steps.c.extra.op("->>", return_type=sa.String())(sa.literal(name, sa.String))
    if dialect == "postgresql":
        return found
    return sa.case((sa.func.json_valid(steps.c.extra) == 1, found))  # a damaged row has no value


def _point(row: sa.Row[*tuple[Any, ...]], selection: CurveSelection) -> CurvePoint:
    line, step, time_s, *folded = row
    values: dict[str, Spread] = {}
    for index, name in enumerate(selection.metrics):
        mean, low, high = folded[3 * index : 3 * index + 3]
        if mean is not None:
            values[name] = Spread(float(mean), float(low), float(high))
    return CurvePoint(int(line) or None, int(step), float(time_s), values)
