"""Persistent state of the queue: projects, the reservations of jobs, and the intents to suspend or preempt them."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.author import CONTROLLER, Author
from regroup.service.domain.errors import ConflictError, NotFoundError
from regroup.service.domain.states import JobState, Reason
from regroup.service.store.access.audit import Change, audited, record_change
from regroup.service.store.jobs.job_writer import SUSPEND, JobWriter
from regroup.service.store.jobs.revised_jobs import RevisedJobs
from regroup.service.store.jobs.state_version import StateVersion, read_version
from regroup.service.store.notices.notice_rows import Notice, Topic, record_notices
from regroup.service.store.rows.job_rows import JOB_COLUMNS, job_row
from regroup.service.store.rows.records import Allocation, AllocationKind, JobRow, Lease, ProjectRow
from regroup.service.store.schema.json_values import plain
from regroup.service.store.schema.tables import LIVE, allocations, jobs, projects
from regroup.service.store.transactions import leases
from regroup.service.store.transactions.change_notifier import Changes
from regroup.service.store.transactions.database import Database

ValueT = TypeVar("ValueT")
RESIZE = "resize"
"""Intent to change the size of a job: `{layout, why, requested_s, is_requested}`, until the change is complete.

`is_requested` is false if the scheduler decided it, true if a person did.
"""
PREEMPT = "preempt"
"""Intent that a job saves its state, releases all its nodes and queues again: `{why, requested_s}`."""
BUDGET = "budget"
"""Intent that replaces the budget of a job's spec: `UsageBudget`."""
FOR_BUDGET = "for_budget"
"""Field of the intent to suspend: true if the server suspends the job because a budget is used up."""
_NEVER_SUSPENDED = frozenset({JobState.DRAINING, *(state for state in JobState if state.is_terminal)})


def must_release_all(job: JobRow) -> bool:
    """Return True if the job must save its state and release all nodes, for another job or to be suspended."""
    return PREEMPT in job.intents or SUSPEND in job.intents


def is_suspended_for_budget(job: JobRow) -> bool:
    """Return True if the server suspended the job because a budget is used up, and no person did, too."""
    return bool((job.intents.get(SUSPEND) or {}).get(FOR_BUDGET))


class QueueStore:
    """The part of `Store` for the queue: `store.queue`."""

    def __init__(self, database: Database, changes: Changes) -> None:
        self._database, self._changes = database, changes

    async def version(self) -> StateVersion:
        """Return a value that differs after each change of a job that has not ended, a node or a project."""
        return await read_version(self._database)

    def observe(self, convert: Callable[[Mapping[Any, Any]], ValueT]) -> RevisedJobs[ValueT]:
        """Return a reader of the QUEUED jobs as values, of which only those are read again that have changed.

        Args:
            convert: makes a value of a row with `JOB_COLUMNS`. Only the values are kept.
        """
        queued = sa.and_(jobs.c.state == JobState.QUEUED, LIVE)
        return RevisedJobs(self._database, queued, JOB_COLUMNS, convert)

    async def count_jobs(self) -> dict[str, int]:
        """Return the number of QUEUED jobs by project."""
        query = sa.select(jobs.c.project, sa.func.count()).where(jobs.c.state == JobState.QUEUED).group_by("project")
        async with self._database.read() as connection:
            return {project: int(count) for project, count in await connection.execute(query)}

    async def projects(self) -> list[ProjectRow]:
        """Return all projects that have a row, sorted by name."""
        async with self._database.read() as connection:
            rows = (await connection.execute(sa.select(projects).order_by(projects.c.name))).mappings()
            return [ProjectRow(**row) for row in rows]

    async def project(self, name: str) -> ProjectRow:
        """Return the project. A project without a row has no quota and no rules."""
        async with self._database.read() as connection:
            row = (
                (await connection.execute(sa.select(projects).where(projects.c.name == name))).mappings().one_or_none()
            )
            return ProjectRow(name) if row is None else ProjectRow(**row)

    async def put_project(self, row: ProjectRow, *, now: float = 0.0, author: Author = CONTROLLER) -> None:
        """Create or replace a project. The next scheduling pass applies it; running jobs continue."""
        after = plain(dataclasses.asdict(row))
        async with self._database.write() as connection:
            before = await _find_project(connection, row.name)
            await connection.execute(projects.delete().where(projects.c.name == row.name))
            await connection.execute(projects.insert().values(**after))
            seen = ProjectRow(row.name) if before is None else ProjectRow(**before)
            change = Change("projects.put", row.name, row.name, before, after, etag_before=seen.etag)
            await record_change(connection, author, change, now)
            await record_notices(connection, [Notice(Topic.PROJECT, "put", now, project=row.name)])
        self._changes.announce("")

    async def remove_project(self, name: str, *, now: float = 0.0, author: Author = CONTROLLER) -> None:
        """Delete a project without live jobs.

        Raises:
            NotFoundError: the project has no row.
            ConflictError: the project has jobs that have not ended.
        """
        async with self._database.write() as connection:
            used = sa.select(sa.func.count()).where(jobs.c.project == name, LIVE)
            if count := (await connection.execute(used)).scalar_one():
                live = f"{count} jobs that have" if count > 1 else "1 job that has"
                remedy = f"wait or cancel (`regroup jobs --project {name}`)"
                raise ConflictError(f"project {name!r} has {live} not ended; {remedy}")
            before = await _find_project(connection, name)
            if before is None:
                raise NotFoundError(
                    f"project {name!r} is not set up; `regroup projects list` lists the projects that are"
                )
            await connection.execute(projects.delete().where(projects.c.name == name))
            await record_change(connection, author, Change("projects.delete", name, name, before), now)
            await record_notices(connection, [Notice(Topic.PROJECT, "delete", now, project=name)])
        self._changes.announce("")

    async def reservations_of(self, job_id: str) -> list[Allocation]:
        """Return all reservations of a job, also released ones, the oldest first."""
        names = [field.name for field in dataclasses.fields(Allocation)]
        query = sa.select(*(allocations.c[name] for name in names)).where(
            allocations.c.job_id == job_id, allocations.c.kind == AllocationKind.RESERVATION
        )
        async with self._database.read() as connection:
            rows = (await connection.execute(query.order_by(allocations.c.id))).mappings()
            return [Allocation.from_row(row) for row in rows]

    async def request_capacity(self, lease: Lease, job_id: str, intent: Mapping[str, Any], *, now: float) -> None:
        """Record the intent that a job must release devices for another: `PREEMPT` or `RESIZE`, with `why`.

        Without effect if the job already has this intent, or has no allocations.

        Raises:
            PreconditionError: another control plane leads now.
        """
        async with self._database.write() as connection:
            await leases.check(connection, lease)
            writer = await JobWriter.lock(connection, job_id)
            if not writer.job.state.has_allocations or intent.keys() & writer.job.intents.keys():
                return
            intents, reasons = {**writer.job.intents, **intent}, {name: each["why"] for name, each in intent.items()}
            await writer.record("intent", reasons, time_s=now, actor="controller", changes={"intents": intents})
        self._changes.announce(job_id)

    async def suspended(self) -> list[JobRow]:
        """Return the suspended jobs."""
        async with self._database.read() as connection:
            rows = (
                await connection.execute(sa.select(*JOB_COLUMNS).where(jobs.c.state == JobState.SUSPENDED, LIVE))
            ).mappings()
            return [job_row(row) for row in rows]

    async def suspend(
        self,
        job_id: str,
        why: str,
        *,
        now: float,
        author: Author,
        lease: Lease | None = None,
        for_budget: bool = False,
    ) -> JobRow:
        """Record the intent to suspend a job. A queued job is suspended at once, any other after its state is saved.

        Without effect if the job already has this intent.

        Args:
            lease: lease of a leader that suspends the job automatically.
            for_budget: the leader resumes the job when its budget allows it, unless a person suspends it, too.

        Raises:
            ConflictError: the job has ended, or is ending.
            PreconditionError: another control plane leads now.
        """
        async with self._database.write() as connection:
            if lease is not None:
                await leases.check(connection, lease)
            writer = await JobWriter.lock(connection, job_id)
            async with audited(writer, author, "jobs.suspend", now):
                await _suspend(writer, {"why": why, "requested_s": now}, for_budget, now, author.name)
        self._changes.announce(job_id)
        return writer.job

    async def resume(self, job_id: str, *, now: float, author: Author, lease: Lease | None = None) -> JobRow:
        """Withdraw the intent to suspend a job. A suspended job queues again; any other job continues.

        Without effect if the job does not have this intent.

        Args:
            lease: lease of a leader that resumes the job automatically: only if no person suspended it.

        Raises:
            ConflictError: the job has ended.
            PreconditionError: another control plane leads now.
        """
        async with self._database.write() as connection:
            if lease is not None:
                await leases.check(connection, lease)
            writer = await JobWriter.lock(connection, job_id)
            if lease is not None and not is_suspended_for_budget(writer.job):
                return writer.job
            async with audited(writer, author, "jobs.resume", now):
                await _resume(writer, now, author.name)
        self._changes.announce(job_id)
        return writer.job


async def _find_project(connection: AsyncConnection, name: str) -> dict[str, Any] | None:
    row = (await connection.execute(sa.select(projects).where(projects.c.name == name))).mappings().one_or_none()
    return None if row is None else dict(row)


async def _suspend(writer: JobWriter, request: Mapping[str, Any], for_budget: bool, now: float, actor: str) -> None:
    job = writer.job
    if job.state in _NEVER_SUSPENDED or job.intents.get("cancel"):
        raise ConflictError(f"job {job.id} is {job.state}: only a job that waits or runs can be suspended")
    if SUSPEND in job.intents and (for_budget or not is_suspended_for_budget(job)):
        return
    intent = {SUSPEND: {**request, FOR_BUDGET: True} if for_budget else dict(request)}
    changes = {"intents": {**job.intents, **intent}}
    await writer.record("intent", intent, time_s=now, actor=actor, changes=changes)
    if job.state is JobState.QUEUED:
        await writer.move(JobState.SUSPENDED, Reason.SUSPENDED, request["why"], now=now, actor=actor)


async def _resume(writer: JobWriter, now: float, actor: str) -> None:
    job = writer.job
    if job.state.is_terminal:
        raise ConflictError(f"job {job.id} is {job.state}: only a suspended job can be resumed")
    if SUSPEND not in job.intents:
        return
    changes = {"intents": {name: intent for name, intent in job.intents.items() if name != SUSPEND}}
    await writer.record("intent", {SUSPEND: None}, time_s=now, actor=actor, changes=changes)
    if job.state is JobState.SUSPENDED:
        await writer.move(JobState.QUEUED, Reason.RESUMED, now=now, actor=actor)
