"""The committed steps of jobs: their rows, and what the newest ones show on the row of the job.

All steps of all jobs pass through here. Rows go to the driver as tuples: SQLAlchemy would take longer to prepare a row
than the driver to send it.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.step_columns import StepColumns
from regroup.service.store.jobs.job_writer import JobWriter
from regroup.service.store.rows.records import JobRow
from regroup.service.store.schema.json_values import finite, number, plain
from regroup.service.store.schema.tables import steps as steps_table

_SMOOTHING = 0.1  # weight of the newest step in the moving averages
_FACTS = ("mfu", "exposed_communication", "peak_bytes", "pipeline_idle")
"""Metrics of a step that are also shown on the job's row."""
_STEPS = sa.select(steps_table.c.generation, steps_table.c.step).where(
    steps_table.c.job_id == sa.bindparam("of_job"),
    steps_table.c.generation.in_(sa.bindparam("numbers", expanding=True)),
    steps_table.c.step.between(sa.bindparam("first"), sa.bindparam("last")),
)
_COLUMNS = [column.name for column in steps_table.c]
_Place = tuple[int, int]
"""Generation and step."""


async def add_steps(
    connection: AsyncConnection, reported: Sequence[tuple[JobWriter, StepColumns]], *, is_thorough: bool
) -> None:
    """Insert the new rows of several jobs with one statement. Those of each job are numbered after its last row.

    Args:
        reported: steps of each job, no step twice.
        is_thorough: True to look up every reported step. Otherwise those after the newest one of the job's row count as
            new, and the insert fails with an `IntegrityError` in the rare case that one is not.
    """
    statement, converters = _insertion(connection.dialect)
    rows = list[tuple[Any, ...]]()
    for writer, steps in reported:
        fresh = await _without_stored(writer, steps, is_thorough=is_thorough)
        if fresh:
            newest = writer.job.step_rows
            rows += _rows(writer.job.id, newest, fresh, converters)
            writer.defer(step_rows=newest + len(fresh))
    if rows:
        await connection.exec_driver_sql(statement, rows)


def fold_steps(job: JobRow, reported: StepColumns) -> dict[str, Any]:
    """Return the columns of a job's row after committed steps. Late rows of older generations change nothing."""
    steps = reported.select(_places_after(job, reported))
    if not steps:
        return {}
    stall_s, duration, tokens = job.stall_s, job.step_duration_s, job.tokens_per_s
    for each in _finite(steps.stall_s):
        stall_s += each or 0.0
    changes: dict[str, Any] = {"step": steps.step[-1], "stall_s": stall_s}
    if values := [each for each in steps.loss if each is not None]:  # a script may report it later
        changes["loss"] = finite(values[-1])
    if values := [each for each in _finite(steps.validation_loss) if each is not None]:
        changes["validation_loss"] = values[-1]
    for duration_s, count in zip(_finite(steps.duration_s), steps.tokens, strict=True):
        if duration_s:
            changes["step_duration_s"] = duration = _smooth(duration, duration_s)
            if count is not None:
                changes["tokens_per_s"] = tokens = _smooth(tokens, count / duration_s)
    facts = {name: steps.metrics[name][-1] for name in _FACTS if name in steps.metrics}
    for metrics in steps.extra:
        facts |= {name: metrics[name] for name in _FACTS if name in metrics}
    return changes | {name: number(facts, name) for name in facts}


def _smooth(average: float | None, value: float) -> float:
    return value if average is None else average + _SMOOTHING * (value - average)


def _places_after(job: JobRow, steps: StepColumns) -> Sequence[int]:
    """Return the places of the steps that are newer than all before them, in the job's present generation."""
    newest, found = job.step, list[int]()
    for place, (generation, step) in enumerate(zip(steps.generation, steps.step, strict=True)):
        if generation == job.generation and step > newest:
            newest = step
            found.append(place)
    return range(len(steps)) if len(found) == len(steps) else found


async def _without_stored(writer: JobWriter, steps: StepColumns, *, is_thorough: bool) -> StepColumns:
    """Return the steps that the database does not have."""
    job, keys = writer.job, list(zip(steps.generation, steps.step, strict=True))
    # No row of a newer step of the same generation can exist: the job's row shows the newest one.
    unsure = [key for key in keys if is_thorough or key[0] != job.generation or key[1] <= job.step]
    if not unsure:
        return steps
    stored = await _stored_places(writer, unsure)
    return steps.select([place for place, key in enumerate(keys) if key not in stored])


async def _stored_places(writer: JobWriter, keys: Sequence[_Place]) -> set[_Place]:
    numbers = [step for _, step in keys]
    place = {"of_job": writer.job.id, "numbers": list({generation for generation, _ in keys})}
    found = await writer.connection.execute(_STEPS, {**place, "first": min(numbers), "last": max(numbers)})
    return {(int(generation), int(step)) for generation, step in found}


def _rows(
    job_id: str, newest: int, steps: StepColumns, converters: Mapping[str, Callable[[Any], Any]]
) -> list[tuple[Any, ...]]:
    """Return the rows of steps after row number `newest`, with their columns in the order of the table."""
    count = len(steps)
    columns: dict[str, Sequence[Any]] = {
        "job_id": [job_id] * count,
        "generation": steps.generation,
        "step": steps.step,
        "number": range(newest + 1, newest + 1 + count),
        "time_s": steps.time_s,
        "duration_s": _finite(steps.duration_s),
        "loss": _finite(steps.loss),
        "tokens": steps.tokens,
        "samples": steps.samples,
        "samples_hash": steps.samples_hash,
        "learning_rate": _finite(steps.learning_rate),
        "grad_norm": _finite(steps.grad_norm),
        "validation_loss": _finite(steps.validation_loss),
        "stall_s": _finite(steps.stall_s),
    }
    for name, convert in converters.items():
        if name in columns:
            columns[name] = [convert(value) for value in columns[name]]
    columns["extra"] = encode_metrics(steps, converters["extra"])
    return list(zip(*(columns[name] for name in _COLUMNS), strict=True))


def _finite(column: Sequence[float | None]) -> Sequence[float | None]:
    """Return a column with None in place of values that are not finite."""
    kinds = set(map(type, column))
    if kinds == {float} and math.isfinite(sum(cast(Sequence[float], column))):  # no value of a finite sum is otherwise
        return column
    return column if kinds <= {NoneType} else [finite(value) for value in column]


def encode_metrics(steps: StepColumns, encode: Callable[[Any], Any]) -> list[Any]:
    """Return the metrics of each step as the driver takes them: as JSON. Usual ones need no encoder."""
    if steps.extra:
        return [encode(plain(metrics)) for metrics in steps.extra]
    columns = list(steps.metrics.values())
    are_usual = all(set(map(type, each)) == {float} and math.isfinite(sum(each)) for each in columns)
    if are_usual and all(name.isascii() and name.isidentifier() for name in steps.metrics):
        form = "{" + ", ".join(f'"{name}": %r' for name in steps.metrics) + "}"
        return [form % values for values in zip(*columns, strict=True)] if columns else ["{}"] * len(steps)
    rows = zip(*columns, strict=True)
    return [encode(plain(dict(zip(steps.metrics, values, strict=True)))) for values in rows]


@functools.lru_cache(maxsize=8)
def _insertion(dialect: sa.Dialect) -> tuple[str, Mapping[str, Callable[[Any], Any]]]:
    """Return the insert in the dialect of a driver, and the converters of the columns that it needs in another form."""
    compiled = steps_table.insert().compile(dialect=dialect, column_keys=_COLUMNS)
    assert compiled.positiontup == _COLUMNS, "both drivers have places in the order of the columns"
    found = {column.name: column.type.dialect_impl(dialect).bind_processor(dialect) for column in steps_table.c}
    return str(compiled), {name: convert for name, convert in found.items() if convert is not None}
