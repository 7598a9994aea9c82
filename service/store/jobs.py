"""The rows of jobs: insert, find, list by page; and the stored responses of idempotency keys."""

import secrets
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.errors import ConflictError, NotFoundError
from regroup.service.domain.states import JobState, Reason
from regroup.service.store.job_writer import job_row
from regroup.service.store.json_values import plain
from regroup.service.store.records import JobFilter, JobRow, NewJob, Page
from regroup.service.store.tables import events, idempotency, jobs, keys, labels, plans

_TERMINAL = [state for state in JobState if state.is_terminal]


async def insert(connection: AsyncConnection, new: NewJob, now: float, actor: str) -> JobRow:
    """Queue a job: its row and event 1.

    Raises:
        ConflictError: a live job of the project has this name.
    """
    spec = new.spec
    row: dict[str, Any] = {
        "id": new.id,
        "project": spec.project,
        "name": spec.name,
        "owner": spec.owner,
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
    try:
        async with connection.begin_nested():
            await connection.execute(jobs.insert().values(**row))
    except exc.IntegrityError as error:
        raise ConflictError(
            f"project {spec.project!r} has a live job named {spec.name!r}; cancel it, wait for it, or use another name"
        ) from error
    if spec.labels:
        pairs = [{"job_id": new.id, "key": key, "value": value} for key, value in spec.labels.items()]
        await connection.execute(labels.insert(), pairs)
    if new.plan is not None:
        await connection.execute(plans.insert().values(job_id=new.id, data=plain(new.plan)))
    data = {"from": None, "to": JobState.QUEUED, "reason": Reason.SUBMITTED, "message": ""}
    event = {
        "job_id": new.id,
        "number": 1,
        "type": "state",
        "time_s": now,
        "generation": 0,
        "actor": actor,
        "data": data,
    }
    await connection.execute(events.insert().values(**event))
    return await get(connection, new.id)


async def get(connection: AsyncConnection, job_id: str) -> JobRow:
    """Return the job with this id.

    Raises:
        NotFoundError: there is no such job.
    """
    row = (await connection.execute(sa.select(jobs).where(jobs.c.id == job_id))).mappings().one_or_none()
    if row is None:
        raise NotFoundError(f"no job {job_id!r}")
    return job_row(dict(row))


async def find(connection: AsyncConnection, reference: str, project: str) -> JobRow:
    """Return the job with this id, else the live job with this name in the project, else the newest with this name.

    Raises:
        NotFoundError: there is no such job.
    """
    named = sa.and_(jobs.c.name == reference, jobs.c.project == project)
    live_first = sa.case((jobs.c.state.in_(_TERMINAL), 1), else_=0)
    query = sa.select(jobs).where(sa.or_(jobs.c.id == reference, named)).order_by(live_first, jobs.c.id.desc()).limit(1)
    row = (await connection.execute(query)).mappings().one_or_none()
    if row is None:
        raise NotFoundError(f"no job with id or, in project {project!r}, name {reference!r}; `regroup jobs` lists them")
    return job_row(dict(row))


async def in_states(connection: AsyncConnection, states: list[JobState]) -> list[JobRow]:
    """Return the jobs in these states, the oldest first."""
    query = sa.select(jobs).where(jobs.c.state.in_(states)).order_by(jobs.c.created_at, jobs.c.id)
    return [job_row(dict(row)) for row in (await connection.execute(query)).mappings()]


async def page(connection: AsyncConnection, job_filter: JobFilter, after: str | None, limit: int) -> Page:
    """Return up to `limit` jobs with ids below `after`, the newest first. Ids grow with time."""
    query = sa.select(jobs)
    if job_filter.states:
        query = query.where(jobs.c.state.in_(sorted(job_filter.states)))
    if job_filter.project is not None:
        query = query.where(jobs.c.project == job_filter.project)
    if job_filter.name is not None:
        query = query.where(jobs.c.name == job_filter.name)
    for key, value in job_filter.labels.items():
        has = sa.and_(labels.c.job_id == jobs.c.id, labels.c.key == key, labels.c.value == value)
        query = query.where(sa.select(sa.literal(1)).where(has).exists())
    if after is not None:
        query = query.where(jobs.c.id < after)
    rows = (await connection.execute(query.order_by(jobs.c.id.desc()).limit(limit + 1))).mappings().all()
    found = tuple(job_row(dict(row)) for row in rows[:limit])
    return Page(found, found[-1].id if len(rows) > limit else None)


async def remembered(connection: AsyncConnection, scope: str, key: str, since: float) -> tuple[str, Any] | None:
    """Return the hash of the body and the response stored for this key after `since`; None if there are none."""
    query = sa.select(idempotency.c.body_hash, idempotency.c.response).where(
        idempotency.c.scope == scope, idempotency.c.key == key, idempotency.c.created_at > since
    )
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else (str(row.body_hash), row.response)


async def remember(
    connection: AsyncConnection, scope: str, key: str, body_hash: str, response: Any, now: float, since: float
) -> None:
    """Store the response of this key, and delete responses older than `since`.

    Raises:
        ConflictError: another request with this key was answered concurrently.
    """
    await connection.execute(idempotency.delete().where(idempotency.c.created_at <= since))
    row = {"scope": scope, "key": key, "body_hash": body_hash, "response": response, "created_at": now}
    try:
        async with connection.begin_nested():
            await connection.execute(idempotency.insert().values(**row))
    except exc.IntegrityError as error:
        raise ConflictError(f"another request with Idempotency-Key {key!r} is in progress; send it again") from error


async def own_key(connection: AsyncConnection, name: str) -> str:
    """Return a secret of this deployment. The first call creates it."""
    query = sa.select(keys.c.value).where(keys.c.name == name)
    value = (await connection.execute(query)).scalar_one_or_none()
    if value is not None:
        return str(value)
    try:
        async with connection.begin_nested():
            await connection.execute(keys.insert().values(name=name, value=secrets.token_hex(32)))
    except exc.IntegrityError:
        pass  # another replica was first
    return str((await connection.execute(query)).scalar_one())
