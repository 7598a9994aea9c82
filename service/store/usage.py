"""Use of devices: who held which devices when. It is read from allocations, and stored before these are removed.

The allocations of a job that has ended never change. They are folded once into rows of `usage`, a few for each job,
which outlive the job. The use in a window is the sum over these rows and over the allocations of all other jobs.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.states import JobState
from regroup.service.policy.usage.device_spans import ACCELERATOR, DeviceSpan, merge_spans, span_of
from regroup.service.store.jobs.jobs import batched
from regroup.service.store.jobs.totals import add
from regroup.service.store.rows.records import AllocationKind
from regroup.service.store.schema.tables import allocations, jobs, metric_totals, usage
from regroup.service.store.transactions.database import Database

_PROJECT_SECONDS = "project_device_seconds"
"""Stored sum: device-seconds of folded jobs by project."""
_PER_STATEMENT = 500
"""Number of ids in one statement. SQLite and PostgreSQL limit the number of parameters."""
_TERMINAL = [state for state in JobState if state.is_terminal]
Key = tuple[str, ...]
"""Values of the columns of a group: one for each `Group`, in the order of the request."""


class Group(StrEnum):
    """A property by which use is summed."""

    PROJECT = "project"
    USER = "user"
    """Identity that submitted the job."""
    CLASS = "class"
    """Accelerator class."""
    JOB = "job"


_COLUMNS: Mapping[Group, sa.Column[Any]] = {
    Group.PROJECT: usage.c.project,
    Group.USER: usage.c.author,
    Group.CLASS: usage.c.accelerator,
    Group.JOB: usage.c.job_id,
}


@dataclass(frozen=True)
class UsageSelection:
    """Use in a window of time, in groups."""

    from_s: float
    """Start of the window, Unix seconds."""
    to_s: float
    """End of the window, which is not part of it."""
    groups: tuple[Group, ...] = ()
    projects: frozenset[str] | None = None
    """Only these projects; None for all."""


@dataclass(frozen=True)
class GroupUse:
    """Use of one group."""

    key: Key
    seconds: Mapping[str, float]
    """Accelerator → device-seconds."""
    job_name: str | None = None
    """Name of the job, if the group is one job."""


@dataclass(frozen=True)
class Use:
    """Use of devices until a moment."""

    seconds: Mapping[str, float]
    """Accelerator → device-seconds."""
    held: Mapping[str, int]
    """Accelerator → number of devices that are held at that moment."""


@dataclass(frozen=True)
class JobSpan:
    """Devices that a job spans, with the values by which they are grouped."""

    project: str
    author: str
    job_id: str
    job: str
    span: DeviceSpan

    def key(self, groups: Sequence[Group]) -> Key:
        values = {
            Group.PROJECT: self.project,
            Group.USER: self.author,
            Group.CLASS: self.span.accelerator,
            Group.JOB: self.job_id,
        }
        return tuple(values[group] for group in groups)


class UsageStore:
    """The part of `Store` for the use of devices: `store.usage`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, selection: UsageSelection, after: Key | None, limit: int) -> list[GroupUse]:
        """Return up to `limit` groups with some use, in the order of their keys, after the one with key `after`.

        Use after now does not exist yet, so the end of the window must not be later than now.
        """
        within = _overlaps(selection)
        columns = [_COLUMNS[group] for group in selection.groups]
        async with self._database.read_snapshot() as connection:
            held = await open_spans(connection, selection)
            held = [each for each in held if each.span.device_seconds(selection.from_s, selection.to_s) > 0]
            keys = {each.key(selection.groups) for each in held}
            if columns:
                found = sa.select(*columns).where(*within, *_above(columns, after)).group_by(*columns)
                rows = await connection.execute(found.order_by(*columns).limit(limit))
                keys |= {tuple(row) for row in rows}
            else:
                keys.add(())
            chosen = sorted(key for key in keys if after is None or key > after)[:limit]
            if not chosen:
                return []
            seconds: dict[Key, defaultdict[str, float]] = {key: defaultdict(float) for key in chosen}
            names: dict[Key, str] = {}
            job, used_s = sa.func.max(usage.c.job).label("job"), _clipped_seconds(selection).label("used_s")
            summed = sa.select(*columns, usage.c.accelerator.label("kind"), job, used_s)
            summed = summed.where(*within, *_above(columns, after), *_up_to(columns, chosen[-1]))
            for row in await connection.execute(summed.group_by(*columns, usage.c.accelerator)):
                if (key := tuple(row[: len(columns)])) in seconds:
                    seconds[key][row.kind] += float(row.used_s)
                    names[key] = row.job
        for each in held:
            if (key := each.key(selection.groups)) in seconds:
                seconds[key][each.span.accelerator] += each.span.device_seconds(selection.from_s, selection.to_s)
                names[key] = each.job
        is_one_job = Group.JOB in selection.groups
        return [GroupUse(key, dict(seconds[key]), names[key] if is_one_job else None) for key in chosen]

    async def seconds_by_project(self, now: float) -> dict[str, float]:
        """Return the device-seconds of each project since the beginning."""
        seconds = defaultdict[str, float](float)
        async with self._database.read_snapshot() as connection:
            stored = sa.select(metric_totals).where(metric_totals.c.metric == _PROJECT_SECONDS)
            for row in await connection.execute(stored):
                seconds[_project_of(row.labels)] += float(row.value)
            for each in await open_spans(connection, UsageSelection(0.0, now)):
                seconds[each.project] += each.span.device_seconds(0.0, now)
        return dict(seconds)

    async def of_job(self, job_id: str, *, now: float) -> Use:
        """Return the use of a job until now. Its use must not be folded: it has not ended."""
        async with self._database.read() as connection:
            held = await _read_spans(connection, _HELD.where(allocations.c.job_id == job_id))
        return _use_of([each.span for each in held], 0.0, now)

    async def of_project(self, project: str, from_s: float, *, now: float) -> Use:
        """Return the use of a project from a time until now."""
        selection = UsageSelection(from_s, now, projects=frozenset({project}))
        async with self._database.read_snapshot() as connection:
            summed = sa.select(usage.c.accelerator, _clipped_seconds(selection)).where(*_overlaps(selection))
            stored = (await connection.execute(summed.group_by(usage.c.accelerator))).all()
            held = await open_spans(connection, selection)
        use = _use_of([each.span for each in held], from_s, now)
        seconds = defaultdict[str, float](float, use.seconds)
        for accelerator, used_s in stored:
            seconds[accelerator] += float(used_s)
        return Use(dict(seconds), use.held)

    async def unfolded(self, limit: int) -> list[str]:
        """Return jobs that have ended and whose use is not stored yet."""
        # Without the empty text, SQLite would search all jobs by their state.
        query = sa.select(jobs.c.id).where(jobs.c.usage_at.is_(None), (jobs.c.state + "").in_(_TERMINAL))
        async with self._database.read() as connection:
            return list((await connection.execute(query.order_by(jobs.c.id).limit(limit))).scalars())

    async def fold(self, job_id: str, *, now: float) -> bool:
        """Store the use of a job that has ended; return False if that was done before, or the job has not ended."""
        here = sa.and_(jobs.c.id == job_id, jobs.c.usage_at.is_(None), jobs.c.state.in_(_TERMINAL))
        async with self._database.write() as connection:
            query = sa.select(jobs.c.finished_at).where(here).with_for_update()
            row = (await connection.execute(query)).one_or_none()
            if row is None:
                return False
            until_s = now if row.finished_at is None else float(row.finished_at)
            held = await _read_spans(connection, _HELD.where(allocations.c.job_id == job_id))
            merged = merge_spans((each.span for each in held), until_s)
            if held:
                first = held[0]
                shared = {"job_id": job_id, "job": first.job, "project": first.project, "author": first.author}
                values = [{**shared, **vars(span)} for span in merged]
                if values:
                    await connection.execute(usage.insert(), values)
                total_s = sum(span.device_seconds(0.0, until_s) for span in merged)
                await add(connection, {(_PROJECT_SECONDS, (first.project,)): total_s})
            await connection.execute(jobs.update().where(here).values(usage_at=now))
        return True


_HELD: sa.Select[*tuple[Any, ...]] = (
    sa.select(
        allocations.c.data,
        allocations.c.created_at,
        allocations.c.released_at,
        jobs.c.id,
        jobs.c.name,
        jobs.c.project,
        jobs.c.author,
    )
    .join(jobs, jobs.c.id == allocations.c.job_id)
    .where(allocations.c.kind == AllocationKind.RESERVATION)
)
"""Reservations, with what is needed of their jobs."""


def _use_of(spans: Sequence[DeviceSpan], from_s: float, to_s: float) -> Use:
    seconds, held = defaultdict[str, float](float), Counter[str]()
    for span in spans:
        seconds[span.accelerator] += span.device_seconds(from_s, to_s)
        held[span.accelerator] += span.devices if span.end_s is None else 0
    return Use(dict(seconds), dict(held))


async def open_spans(connection: AsyncConnection, selection: UsageSelection) -> list[JobSpan]:
    """Return the devices that jobs held in the window whose use is not folded."""
    # Without the subquery and the empty text, SQLite would read all allocations, or all jobs of a project.
    query = _HELD.where(
        allocations.c.job_id.in_(sa.select(jobs.c.id).where(jobs.c.usage_at.is_(None))),
        allocations.c.created_at < selection.to_s,
        sa.or_(allocations.c.released_at.is_(None), allocations.c.released_at > selection.from_s),
    )
    if selection.projects is not None:
        query = query.where((jobs.c.project + "").in_(selection.projects))
    return await _read_spans(connection, query)


async def _read_spans(connection: AsyncConnection, query: sa.Select[*tuple[Any, ...]]) -> list[JobSpan]:
    rows = (await connection.execute(query)).all()
    records = [row.data if isinstance(row.data, dict) else {} for row in rows]
    # Reservations of earlier versions do not name their accelerator.
    unnamed = {row.id for row, data in zip(rows, records, strict=True) if ACCELERATOR not in data}
    requested = await _requested_accelerators(connection, unnamed)
    return [
        JobSpan(
            row.project, row.author, row.id, row.name,
            span_of(data, requested.get(row.id), row.created_at, row.released_at),
        )
        for row, data in zip(rows, records, strict=True)
    ]  # fmt: skip


async def _requested_accelerators(connection: AsyncConnection, job_ids: Collection[str]) -> dict[str, str | None]:
    found = dict[str, str | None]()
    for some in batched(sorted(job_ids), _PER_STATEMENT):
        for row in await connection.execute(sa.select(jobs.c.id, jobs.c.spec).where(jobs.c.id.in_(some))):
            resources = row.spec.get("resources") if isinstance(row.spec, dict) else None
            found[row.id] = resources.get("accelerator") if isinstance(resources, dict) else None
    return found


def _overlaps(selection: UsageSelection) -> list[sa.ColumnElement[bool]]:
    within = [usage.c.end_s > selection.from_s, usage.c.start_s < selection.to_s]
    return within if selection.projects is None else [*within, usage.c.project.in_(selection.projects)]


def _clipped_seconds(selection: UsageSelection) -> sa.ColumnElement[float]:
    """Return the sum of the device-seconds inside the window."""
    from_s, to_s = (sa.literal(each, sa.Double) for each in (selection.from_s, selection.to_s))
    start_s = sa.case((usage.c.start_s < from_s, from_s), else_=usage.c.start_s)
    end_s = sa.case((usage.c.end_s > to_s, to_s), else_=usage.c.end_s)
    return sa.func.sum(usage.c.devices * (end_s - start_s))


def _above(columns: Sequence[sa.Column[Any]], key: Key | None) -> list[sa.ColumnElement[bool]]:
    return [] if key is None or not columns else [sa.tuple_(*columns) > _literals(key)]


def _up_to(columns: Sequence[sa.Column[Any]], key: Key) -> list[sa.ColumnElement[bool]]:
    return [sa.tuple_(*columns) <= _literals(key)] if columns else []


def _literals(key: Key) -> sa.Tuple:
    return sa.tuple_(*(sa.literal(value, sa.String) for value in key))


def _project_of(labels: str) -> str:
    return str(json.loads(labels)[0])
