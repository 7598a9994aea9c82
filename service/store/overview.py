"""Reads for the overview: only jobs that have not ended, those that ended in a window, and their incidents."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from regroup.service.domain.states import JobState
from regroup.service.store.jobs.revised_jobs import RevisedJobs
from regroup.service.store.rows.records import Condition
from regroup.service.store.schema.hook_tables import hook_deliveries, hooks
from regroup.service.store.schema.tables import LIVE, incidents, jobs, usage
from regroup.service.store.transactions.database import Database
from regroup.service.store.usage import UsageSelection, open_spans

_LIVE_COLUMNS = (jobs.c.id, jobs.c.name, jobs.c.project, jobs.c.state, jobs.c.reason, jobs.c.message, jobs.c.conditions)


@dataclass(frozen=True)
class LiveJob:
    """A job that has not ended, with what an overview needs of it."""

    id: str
    name: str
    project: str
    state: JobState
    reason: str
    message: str
    conditions: tuple[Condition, ...]

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of this type; None if the job has none."""
        return next((each for each in self.conditions if each.type == kind), None)


@dataclass(frozen=True)
class RecentIncident:
    """An incident with the job that it belongs to."""

    job_id: str
    job_name: str
    project: str
    number: int
    """Number of the incident among those of its job; the oldest is 1."""
    cause: str
    time_s: float
    data: Mapping[str, Any]


@dataclass(frozen=True)
class FailingHook:
    """A hook whose newest attempt of a delivery failed."""

    id: str
    name: str
    project: str
    error: str


@dataclass(frozen=True)
class WindowUse:
    """Use of devices in a window of time."""

    device_seconds: float = 0.0
    measured_s: float = 0.0
    """Device-seconds of jobs whose goodput is known."""
    productive_s: float = 0.0
    """Those device-seconds, multiplied by the goodput of the jobs."""


class OverviewStore:
    """The part of `Store` for the overview: `store.overview`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._live = RevisedJobs(database, LIVE, _LIVE_COLUMNS, _live_job)

    async def live_jobs(self) -> tuple[LiveJob, ...]:
        """Return the jobs that have not ended, the oldest first."""
        return await self._live.read()

    async def ended(self, since_s: float, until_s: float | None = None) -> dict[tuple[str, JobState], int]:
        """Return the number of jobs that ended since a time, and before another one, by project and state."""
        # Expressions instead of columns: SQLite reads only the jobs of that time, not all of them by project and state.
        project, state = jobs.c.project + "", jobs.c.state + ""
        query = sa.select(project, state, sa.func.count()).where(jobs.c.finished_at >= since_s)
        if until_s is not None:
            query = query.where(jobs.c.finished_at < until_s)
        async with self._database.read() as connection:
            rows = await connection.execute(query.group_by(project, state))
            return {(found, JobState(ended_as)): int(count) for found, ended_as, count in rows}

    async def incidents(
        self, since_s: float, projects: frozenset[str] | None, limit: int
    ) -> tuple[list[RecentIncident], int]:
        """Return the newest incidents since a time, and their number.

        Args:
            projects: only of these projects; None for all.
        """
        earlier = incidents.alias()
        number = (
            sa.select(sa.func.count())
            .where(earlier.c.job_id == incidents.c.job_id, earlier.c.number <= incidents.c.number)
            .scalar_subquery()
        )
        recent = (
            sa.select(incidents, jobs.c.name.label("job_name"), jobs.c.project, number.label("ordinal"))
            .select_from(incidents.join(jobs, jobs.c.id == incidents.c.job_id))
            .where(incidents.c.time_s >= since_s)
        )
        if projects is not None:
            recent = recent.where((jobs.c.project + "").in_(projects))
        newest = recent.order_by(incidents.c.time_s.desc(), incidents.c.job_id, incidents.c.id).limit(limit)
        async with self._database.read() as connection:
            rows = (await connection.execute(newest)).all()
            count = len(rows)
            if count == limit:  # the others are counted, and not read
                number_of_all = sa.select(sa.func.count()).select_from(recent.with_only_columns(jobs.c.id).subquery())
                count = int((await connection.execute(number_of_all)).scalar_one())
        found = [
            RecentIncident(
                row.job_id, row.job_name, row.project, row.ordinal, row.cause, row.time_s,
                row.data if isinstance(row.data, dict) else {},
            )
            for row in rows
        ]  # fmt: skip
        return found, count

    async def failing_hooks(self, projects: frozenset[str] | None, limit: int) -> list[FailingHook]:
        """Return enabled hooks whose newest attempt failed."""
        attempted = hook_deliveries.alias()
        newest = (
            sa.select(sa.func.max(attempted.c.id))
            .where(attempted.c.hook_id == hooks.c.id, attempted.c.attempts > 0)
            .correlate(hooks)
            .scalar_subquery()
        )
        query = (
            sa.select(hooks.c.id, hooks.c.name, hooks.c.project, hook_deliveries.c.error)
            .select_from(hooks.join(hook_deliveries, hook_deliveries.c.id == newest))
            .where(hooks.c.is_enabled, hook_deliveries.c.state != "delivered", hook_deliveries.c.error != "")
        )
        if projects is not None:
            query = query.where(hooks.c.project.in_(projects))
        async with self._database.read() as connection:
            rows = (await connection.execute(query.order_by(hooks.c.project, hooks.c.id).limit(limit))).all()
        return [FailingHook(row.id, row.name, row.project, row.error) for row in rows]

    async def use(self, windows: Sequence[tuple[float, float]]) -> dict[str, list[WindowUse]]:
        """Return the use of devices in windows of time, by project. The last window ends now."""
        sums = defaultdict[str, list[WindowUse]](lambda: [WindowUse()] * len(windows))
        first_s, last_s = windows[0][0], windows[-1][1]
        columns = [column for window in windows for column in _sums_in(*window)]
        query = (
            sa.select(usage.c.project, *columns)
            .select_from(usage.outerjoin(jobs, jobs.c.id == usage.c.job_id))
            .where(usage.c.end_s > first_s, usage.c.start_s < last_s)
            .group_by(usage.c.project)
        )
        unmeasured = sa.select(jobs.c.id, jobs.c.goodput).where(jobs.c.usage_at.is_(None), jobs.c.goodput.is_not(None))
        async with self._database.read_snapshot() as connection:
            for project, *values in await connection.execute(query):
                numbers = [float(value or 0.0) for value in values]
                sums[project] = [WindowUse(*numbers[at : at + 3]) for at in range(0, len(numbers), 3)]
            held = await open_spans(connection, UsageSelection(first_s, last_s))
            goodputs = {row.id: float(row.goodput) for row in await connection.execute(unmeasured)} if held else {}
        for each in held:
            goodput = goodputs.get(each.job_id)
            sums[each.project] = [
                _with_span(use, each.span.device_seconds(*window), goodput)
                for use, window in zip(sums[each.project], windows, strict=True)
            ]
        return dict(sums)


def _live_job(row: Mapping[Any, Any]) -> LiveJob:
    state, conditions = JobState(row["state"]), _conditions(row["conditions"])
    return LiveJob(row["id"], row["name"], row["project"], state, row["reason"], row["message"], conditions)


def _conditions(stored: Any) -> tuple[Condition, ...]:
    """Return the conditions of a row without those that are damaged."""
    names = Condition.__dataclass_fields__.keys()
    whole = (
        [each for each in stored if isinstance(each, dict) and each.keys() == names] if isinstance(stored, list) else []
    )
    return tuple(Condition(**each) for each in whole)


def _sums_in(from_s: float, to_s: float) -> tuple[sa.ColumnElement[float], ...]:
    """Return the columns of one window, in the order of the fields of `WindowUse`."""
    start_s = sa.case((usage.c.start_s < from_s, from_s), else_=usage.c.start_s)
    end_s = sa.case((usage.c.end_s > to_s, to_s), else_=usage.c.end_s)
    inside = sa.and_(usage.c.end_s > from_s, usage.c.start_s < to_s)
    seconds = sa.case((inside, usage.c.devices * (end_s - start_s)), else_=0.0)
    measured = sa.case((jobs.c.goodput.is_not(None), seconds), else_=0.0)
    return sa.func.sum(seconds), sa.func.sum(measured), sa.func.sum(seconds * sa.func.coalesce(jobs.c.goodput, 0.0))


def _with_span(use: WindowUse, seconds: float, goodput: float | None) -> WindowUse:
    total = use.device_seconds + seconds
    if goodput is None:
        return WindowUse(total, use.measured_s, use.productive_s)
    return WindowUse(total, use.measured_s + seconds, use.productive_s + seconds * goodput)
