"""The rows of jobs: insert, find, list by page."""

import functools
import itertools
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.errors import NotFoundError
from regroup.service.domain.states import JobState, Reason
from regroup.service.store.jobs.outbox import Outbox, has_hooks
from regroup.service.store.notices.notice_rows import Notice, record_notices
from regroup.service.store.rows.job_rows import JOB_COLUMNS, job_row
from regroup.service.store.rows.records import JobFilter, JobPosition, JobRow, NewJob, Page
from regroup.service.store.schema.json_values import plain
from regroup.service.store.schema.tables import LIVE, events, jobs, keys, labels, plans
from regroup.service.store.transactions.inserts import add_if_absent, insert_if_absent

_PER_STATEMENT = 500
"""Number of ids in one statement. SQLite and PostgreSQL limit the number of parameters."""
_BRANCHES = 200
"""Number of queries in one union. SQLite allows 500."""
_INSPECTED = 2000
"""Number of jobs that one page reads for filters without an index of their own."""
_TERMINAL = [state for state in JobState if state.is_terminal]
_SUBMITTED: Mapping[str, Any] = {"from": None, "to": JobState.QUEUED, "reason": Reason.SUBMITTED, "message": ""}
"""Data of a job's first event."""
_EMPTY_ROW: Mapping[str, Any] = {column.name: None for column in JOB_COLUMNS}


async def insert_jobs(
    connection: AsyncConnection, submitted: Sequence[tuple[NewJob, float, str]]
) -> list[JobRow | None]:
    """Queue jobs: their rows, and event 1 of each with its notice and its deliveries to hooks.

    Args:
        submitted: for each job the time in Unix seconds, and the identity that submits it.

    Returns:
        The rows in the same order; None for a job whose name a live job of the project has.
    """
    rows = [_new_row(new, now, actor) for new, now, actor in submitted]
    # Sorted: two servers that insert the same names lock them in the same order.
    ordered = sorted(rows, key=lambda row: (row["project"], row["name"]))
    inserted = dict[str, bool]()
    for project, same in itertools.groupby(ordered, key=lambda row: row["project"]):
        added = await connection.execute(_insertion(connection.dialect.name, project), list(same))
        inserted |= {row.id: bool(row.has_hooks) for row in added}
    found = [job_row({**_EMPTY_ROW, **row}) if row["id"] in inserted else None for row in rows]
    accepted = [each for each, row in zip(submitted, found, strict=True) if row is not None]
    if not accepted:
        return found
    pairs = [
        {"job_id": new.id, "key": key, "value": value} for new, *_ in accepted for key, value in new.spec.labels.items()
    ]
    if pairs:
        await connection.execute(labels.insert(), pairs)
    planned = [{"job_id": new.id, "data": plain(new.plan)} for new, *_ in accepted if new.plan is not None]
    if planned:
        await connection.execute(plans.insert(), planned)
    await connection.execute(events.insert(), [_first_event(new.id, now, actor) for new, now, actor in accepted])
    queued = [job for job in found if job is not None]
    await record_notices(connection, [Notice.of_job(job, "state", job.created_at) for job in queued])
    outbox = Outbox(connection)
    for job in queued:
        if inserted[job.id]:
            await outbox.add(job, "state", _SUBMITTED, number=1, generation=0, actor=job.author, time_s=job.created_at)
    return found


@functools.lru_cache(maxsize=256)  # to build the statement takes longer than to send it
def _insertion(dialect: str, project: str) -> sa.Executable:
    """Return the statement that inserts jobs of a project, and returns their ids and whether the project has hooks."""
    return insert_if_absent(dialect, jobs).returning(jobs.c.id, has_hooks(sa.literal(project)))


def _new_row(new: NewJob, now: float, actor: str) -> dict[str, Any]:
    spec = new.spec
    return {
        "id": new.id,
        "project": spec.project,
        "name": spec.name,
        "owner": spec.owner,
        "author": actor,
        "spec": spec.model_dump(mode="json"),
        "storage_uri": new.storage_uri,
        "resume_uri": new.resume_uri,
        "state": JobState.QUEUED,
        "reason": Reason.SUBMITTED,
        "message": "",
        "error": None,
        "version": 1,
        "revision": 1,
        "intents": {},
        "conditions": [],
        "phase": None,
        "created_at": now,
        "queued_at": now,
        "generation": 0,
        "layout": None,
        "step": 0,
        "step_rows": 0,
        "stall_s": 0.0,
        "result": None,
        "rank_phases": {},
        "supervisor_boot_id": "",
        "acked_seq": 0,
    }


def _first_event(job_id: str, now: float, actor: str) -> dict[str, Any]:
    data = dict(_SUBMITTED)
    return {
        "job_id": job_id, "number": 1, "type": "state", "time_s": now, "generation": 0, "actor": actor, "data": data,
    }  # fmt: skip


async def get(connection: AsyncConnection, job_id: str) -> JobRow:
    """Return the job with this id.

    Raises:
        NotFoundError: there is no such job.
    """
    row = (await connection.execute(sa.select(*JOB_COLUMNS).where(jobs.c.id == job_id))).mappings().one_or_none()
    if row is None:
        raise NotFoundError(f"no job {job_id!r}")
    return job_row(row)


async def with_ids(connection: AsyncConnection, job_ids: Collection[str]) -> list[JobRow]:
    """Return the jobs with these ids, in any order. Ids without a job are left out."""
    query = sa.select(*JOB_COLUMNS).where(jobs.c.id.in_(sorted(job_ids)))
    return [job_row(row) for row in (await connection.execute(query)).mappings()]


async def positions(connection: AsyncConnection, job_ids: Collection[str]) -> dict[str, JobPosition]:
    """Return how far these jobs are, by id."""
    columns = (jobs.c.id, jobs.c.state, jobs.c.version, jobs.c.step_rows)
    found: dict[str, JobPosition] = {}
    for some in batched(sorted(job_ids), _PER_STATEMENT):
        rows = await connection.execute(sa.select(*columns).where(jobs.c.id.in_(some)))
        found |= {row.id: JobPosition(JobState(row.state), int(row.version), int(row.step_rows)) for row in rows}
    return found


async def find(connection: AsyncConnection, reference: str, project: str) -> JobRow:
    """Return the job with this id, else the live job with this name in the project, else the newest with this name.

    Raises:
        NotFoundError: there is no such job.
    """
    named = sa.and_(jobs.c.name == reference, jobs.c.project == project)
    newest = sa.select(*JOB_COLUMNS).where(named).order_by(jobs.c.id.desc()).limit(1)
    # One statement for each terminal state: each reads one entry of an index, however many jobs had this name.
    by_id, live = sa.select(*JOB_COLUMNS).where(jobs.c.id == reference), newest.where(LIVE)
    for queries in ([by_id], [live], [newest.where(jobs.c.state == state) for state in _TERMINAL]):
        found = [job_row(row) for query in queries for row in (await connection.execute(query)).mappings()]
        if found:
            return max(found, key=lambda job: job.id)
    raise unknown_job(reference, project)


def unknown_job(reference: str, project: str) -> NotFoundError:
    """Return the error for a job that does not exist, or that its reader must not see."""
    return NotFoundError(f"no job with id or, in project {project!r}, name {reference!r}; `regroup jobs` lists them")


async def in_states(connection: AsyncConnection, states: list[JobState]) -> list[JobRow]:
    """Return the jobs in these states, the oldest first."""
    query = sa.select(*JOB_COLUMNS).where(jobs.c.state.in_(states)).order_by(jobs.c.created_at, jobs.c.id)
    if not any(state.is_terminal for state in states):
        query = query.where(LIVE)
    return [job_row(row) for row in (await connection.execute(query)).mappings()]


async def page(connection: AsyncConnection, job_filter: JobFilter, after: str | None, limit: int) -> Page:
    """Return up to `limit` jobs with ids below `after`, the newest first. Ids grow with time.

    The cost does not grow with the number of jobs. An index holds the ids of each state in order, for each combination
    of project with name or author. For labels, and for name and author together, one page reads a limited number of
    jobs with the first of these values. Such a page may be shorter than `limit` and still have a next page.
    """
    if job_filter.projects is not None and not job_filter.projects:
        return Page((), None)
    if job_filter.ids:
        inspected = sorted((each for each in job_filter.ids if after is None or each < after), reverse=True)
        ids, next_after = await _matching_ids(connection, job_filter, inspected, limit)
    elif job_filter.labels:
        inspected = await _labelled_ids(connection, job_filter, after)
        ids, next_after = await _matching_ids(connection, job_filter, inspected, limit)
    elif job_filter.name is not None and job_filter.author is not None:
        inspected = await _newest_ids(connection, replace(job_filter, author=None), after, _INSPECTED)
        ids, next_after = await _matching_ids(connection, job_filter, inspected, limit)
    else:
        ids = await _newest_ids(connection, job_filter, after, limit + 1)
        next_after = ids[limit - 1] if len(ids) > limit else None
    found = sa.select(*JOB_COLUMNS).where(jobs.c.id.in_(ids[:limit])).order_by(jobs.c.id.desc())
    rows = (await connection.execute(found)).mappings().all() if ids else []
    return Page(tuple(job_row(row) for row in rows), next_after)


async def _newest_ids(connection: AsyncConnection, job_filter: JobFilter, after: str | None, limit: int) -> list[str]:
    branches = list[sa.Select[tuple[str]]]()
    projects = [None] if job_filter.projects is None else sorted(job_filter.projects)
    for state, project in itertools.product(sorted(job_filter.states or JobState), projects):
        query = sa.select(jobs.c.id).where(jobs.c.state == state)
        if project is not None:
            query = query.where(jobs.c.project == project)
        if job_filter.name is not None:
            query = query.where(jobs.c.name == job_filter.name)
        if job_filter.author is not None:
            query = query.where(jobs.c.author == job_filter.author)
        if after is not None:
            query = query.where(jobs.c.id < after)
        newest = query.order_by(jobs.c.id.desc()).limit(limit).subquery()
        branches.append(sa.select(newest.c.id))
    found = list[str]()
    for start in range(0, len(branches), _BRANCHES):
        some = sa.union_all(*branches[start : start + _BRANCHES])
        found += [str(job_id) for job_id in (await connection.execute(some)).scalars()]
    return sorted(found, reverse=True)[:limit]


async def _labelled_ids(connection: AsyncConnection, job_filter: JobFilter, after: str | None) -> list[str]:
    """Return the newest jobs with the first label of the filter."""
    key, value = next(iter(job_filter.labels.items()))
    first = sa.select(labels.c.job_id).where(labels.c.key == key, labels.c.value == value)
    if after is not None:
        first = first.where(labels.c.job_id < after)
    first = first.order_by(labels.c.job_id.desc()).limit(_INSPECTED)
    return list((await connection.execute(first)).scalars())


async def _matching_ids(
    connection: AsyncConnection, job_filter: JobFilter, inspected: Sequence[str], limit: int
) -> tuple[list[str], str | None]:
    """Return those of the inspected jobs that match the whole filter, and the id after which the next page starts."""
    found = list[str]()
    for some in batched(inspected, _PER_STATEMENT):
        query = sa.select(jobs.c.id).where(jobs.c.id.in_(some), *_conditions(job_filter))
        found += (await connection.execute(query.order_by(jobs.c.id.desc()).limit(limit + 1))).scalars()
        if len(found) > limit:
            return found[:limit], found[limit - 1]
    return found, inspected[-1] if len(inspected) == _INSPECTED else None


def _conditions(job_filter: JobFilter) -> Iterator[sa.ColumnElement[bool]]:
    if job_filter.states:
        yield jobs.c.state.in_(sorted(job_filter.states))
    if job_filter.projects is not None:
        yield jobs.c.project.in_(sorted(job_filter.projects))
    if job_filter.name is not None:
        yield jobs.c.name == job_filter.name
    if job_filter.author is not None:
        yield jobs.c.author == job_filter.author
    for key, value in job_filter.labels.items():
        has = sa.and_(labels.c.job_id == jobs.c.id, labels.c.key == key, labels.c.value == value)
        yield sa.select(sa.literal(1)).where(has).exists()


async def own_key(connection: AsyncConnection, name: str) -> str:
    """Return a secret of this deployment. The first call creates it."""
    query = sa.select(keys.c.value).where(keys.c.name == name)
    value = (await connection.execute(query)).scalar_one_or_none()
    if value is not None:
        return str(value)
    await add_if_absent(connection, keys, name=name, value=secrets.token_hex(32))  # another server may be first
    return str((await connection.execute(query)).scalar_one())


def batched(values: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Yield the values in groups of at most `size`."""
    for start in range(0, len(values), size):
        yield values[start : start + size]
