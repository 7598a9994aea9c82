"""Curves of metrics, with few points for many steps: the database folds neighbouring steps."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.store.rows.curves import CurvePoint, Curves, CurveSelection, Spread
from regroup.service.store.schema.tables import generations, steps
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
