"""The committed steps of jobs: their rows, and what the newest ones show on the row of the job.

All steps of all jobs pass through here. Rows go to the driver as tuples: SQLAlchemy would take longer to prepare a row
than the driver to send it.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.store.jobs.job_writer import JobWriter
from regroup.service.store.rows.records import JobRow
from regroup.service.store.schema.json_values import finite, number, plain
from regroup.service.store.schema.tables import steps
from regroup.workers.contract.messages import StepRow

_SMOOTHING = 0.1  # weight of the newest step in the moving averages
_FACTS = ("mfu", "exposed_communication", "peak_bytes", "pipeline_idle")
"""Metrics of a step that are also shown on the job's row."""
_STEPS = sa.select(steps.c.generation, steps.c.step).where(
    steps.c.job_id == sa.bindparam("of_job"),
    steps.c.generation.in_(sa.bindparam("numbers", expanding=True)),
    steps.c.step.between(sa.bindparam("first"), sa.bindparam("last")),
)
_COLUMNS = [column.name for column in steps.c]
_Place = tuple[int, int]
"""Generation and step."""


async def add_steps(
    connection: AsyncConnection, reported: Sequence[tuple[JobWriter, Sequence[StepRow]]], *, is_thorough: bool
) -> None:
    """Insert the new rows of several jobs with one statement. Those of each job are numbered after its last row.

    Args:
        is_thorough: True to look up every reported step. Otherwise those after the newest one of the job's row count as
            new, and the insert fails with an `IntegrityError` in the rare case that one is not.
    """
    values = list[tuple[Any, ...]]()
    for writer, rows in reported:
        if fresh := await _without_stored(writer, rows, is_thorough=is_thorough):
            newest = writer.job.step_rows
            values += [_values(writer.job.id, place, row) for place, row in enumerate(fresh, newest + 1)]
            writer.defer(step_rows=newest + len(fresh))
    if values:
        await _insert(connection, values)


def fold_steps(job: JobRow, rows: Iterable[tuple[int, StepRow]]) -> dict[str, Any]:
    """Return the columns of a job's row after committed steps, in order. Late rows of older generations change nothing.

    Args:
        rows: the steps, each with the generation of its event.
    """
    changes, facts = dict[str, Any](), dict[str, Any]()
    step, stall_s, duration, tokens = job.step, job.stall_s, job.step_duration_s, job.tokens_per_s
    for generation, row in rows:
        if generation != job.generation or row.step <= step:
            continue
        step, stall_s = row.step, stall_s + (finite(row.stall_s) or 0.0)
        changes |= {"step": step, "stall_s": stall_s}
        if row.loss is not None:  # a script may report it later
            changes["loss"] = finite(row.loss)
        validation_loss, duration_s = finite(row.validation_loss), finite(row.duration_s)
        if validation_loss is not None:
            changes["validation_loss"] = validation_loss
        if duration_s:
            changes["step_duration_s"] = duration = _smooth(duration, duration_s)
            if row.tokens is not None:
                changes["tokens_per_s"] = tokens = _smooth(tokens, row.tokens / duration_s)
        facts |= {name: row.extra[name] for name in _FACTS if name in row.extra}
    return changes | {name: number(facts, name) for name in facts}


def _smooth(average: float | None, value: float) -> float:
    return value if average is None else average + _SMOOTHING * (value - average)


async def _without_stored(writer: JobWriter, rows: Sequence[StepRow], *, is_thorough: bool) -> list[StepRow]:
    """Return the first row of each step that the database does not have."""
    seen = await _stored_places(writer, [row for row in rows if is_thorough or not _is_after(writer.job, row)])
    fresh = list[StepRow]()
    for row in rows:
        if (place := (row.generation, row.step)) not in seen:
            seen.add(place)
            fresh.append(row)
    return fresh


def _is_after(job: JobRow, row: StepRow) -> bool:
    """Return whether no row of this step can exist: the job's row shows the newest step of its generation."""
    return row.generation == job.generation and row.step > job.step


async def _stored_places(writer: JobWriter, rows: Sequence[StepRow]) -> set[_Place]:
    if not rows:
        return set()
    numbers = [row.step for row in rows]
    place = {"of_job": writer.job.id, "numbers": list({row.generation for row in rows})}
    found = await writer.connection.execute(_STEPS, {**place, "first": min(numbers), "last": max(numbers)})
    return {(int(generation), int(step)) for generation, step in found}


def _values(job_id: str, place: int, row: StepRow) -> tuple[Any, ...]:
    """Return the columns of a step, in the order of the table."""
    return (
        job_id,
        row.generation,
        row.step,
        place,
        row.time_s,
        finite(row.duration_s),
        finite(row.loss),
        row.tokens,
        row.samples,
        row.samples_hash,
        finite(row.learning_rate),
        finite(row.grad_norm),
        finite(row.validation_loss),
        finite(row.stall_s),
        row.extra,
    )


def encode_metrics(metrics: Mapping[str, Any], encode: Callable[[Any], Any]) -> Any:
    """Return metrics as the driver takes them: as JSON. The encoder takes three times as long for usual ones."""
    usual = [
        f'"{name}": {value!r}'
        for name, value in metrics.items()
        if type(value) is float and math.isfinite(value) and name.isascii() and name.isidentifier()
    ]
    return "{" + ", ".join(usual) + "}" if len(usual) == len(metrics) else encode(plain(metrics))


async def _insert(connection: AsyncConnection, values: Sequence[tuple[Any, ...]]) -> None:
    statement, converted = _insertion(connection.dialect)
    rows = list[tuple[Any, ...]]()
    for row in values:
        columns = list(row)
        for place, convert in converted:
            columns[place] = convert(columns[place])
        rows.append(tuple(columns))
    await connection.exec_driver_sql(statement, rows)


@functools.lru_cache(maxsize=8)
def _insertion(dialect: sa.Dialect) -> tuple[str, Sequence[tuple[int, Callable[[Any], Any]]]]:
    """Return the insert in the dialect of a driver, and the places of the columns that it needs in another form."""
    compiled = steps.insert().compile(dialect=dialect, column_keys=_COLUMNS)
    assert compiled.positiontup == _COLUMNS, "both drivers have places in the order of the columns"
    kinds = [column.type.dialect_impl(dialect).bind_processor(dialect) for column in steps.c]
    converted: dict[int, Callable[[Any], Any]] = {
        place: convert for place, convert in enumerate(kinds) if convert is not None
    }
    metrics = _COLUMNS.index(steps.c.extra.name)
    converted[metrics] = functools.partial(encode_metrics, encode=converted[metrics])
    return str(compiled), list(converted.items())
