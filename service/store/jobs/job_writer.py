"""The only code that writes the row of a job. Each event is a new version of the row: without gaps, in commit order."""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.errors import ConflictError, IllegalTransitionError, NotFoundError
from regroup.service.domain.states import JobState, Reason, Transition, check_transition
from regroup.service.store.jobs.outbox import HAS_HOOKS, Outbox, has_hooks
from regroup.service.store.notices.notice_rows import Notice, record_notices
from regroup.service.store.rows.job_rows import JOB_COLUMNS, job_row
from regroup.service.store.rows.records import NODE_WELL, TERMINATING, Allocation, AllocationKind, Condition, JobRow
from regroup.service.store.schema.json_values import plain
from regroup.service.store.schema.tables import allocations, events, jobs

Intending = Callable[[JobRow], Mapping[str, Any]]
"""Function that returns the intents to change, given a job's row."""


# Statements that are built once: the steps of all jobs pass through them.
_THIS = jobs.c.id == sa.bindparam("of_job")
_SOME = jobs.c.id.in_(sa.bindparam("of_jobs", expanding=True))
# Two transactions that lock the same rows do so in the same order.
_LOCKED = sa.select(*JOB_COLUMNS, has_hooks(jobs.c.project)).where(_SOME).order_by(jobs.c.id).with_for_update()
_LOCKED_REVISIONS = (
    sa.select(jobs.c.id, jobs.c.revision, has_hooks(jobs.c.project)).where(_SOME).order_by(jobs.c.id).with_for_update()
)
_ROWS = sa.select(*JOB_COLUMNS).where(_SOME)
_CHANGED = jobs.update().where(_THIS)
SUSPEND = "suspend"
"""Intent that a job stays suspended: `{why, requested_s}`, from the request until the job is resumed."""


class JobWriter:
    """A job's row, locked until the transaction ends."""

    def __init__(self, connection: AsyncConnection, job: JobRow, outbox: Outbox | None = None) -> None:
        """Create a writer of a locked row.

        Args:
            connection: transaction that has locked it.
            job: the row.
            outbox: receives the events; None if the project has no hooks.
        """
        self.connection = connection
        self.job = job
        self.has_reallocated = False
        """True if it may have changed the job's allocations."""
        self._outbox = outbox
        self._deferred: dict[str, Any] = {}

    @classmethod
    async def lock(cls, connection: AsyncConnection, job_id: str) -> "JobWriter":
        """Lock and read the row.

        Raises:
            NotFoundError: there is no such job.
        """
        found = await cls.lock_all(connection, [job_id])
        if job_id not in found:
            raise NotFoundError(f"no job {job_id!r}")
        return found[job_id]

    @classmethod
    async def lock_all(
        cls, connection: AsyncConnection, job_ids: Collection[str], kept: Mapping[str, JobRow] | None = None
    ) -> dict[str, "JobWriter"]:
        """Lock and read the rows of these jobs together. Ids without a job are left out.

        Args:
            kept: rows that were read before, by id. If it has all, those that have not changed are not read again.
        """
        if kept and kept.keys() >= set(job_ids):
            return await cls._lock_changed(connection, job_ids, kept)
        found = list[JobWriter]()
        for row in (await connection.execute(_LOCKED, {"of_jobs": padded(job_ids)})).mappings():
            columns = dict(row)
            outbox = Outbox(connection) if columns.pop(HAS_HOOKS) else None
            found.append(cls(connection, job_row(columns), outbox))
        return {writer.job.id: writer for writer in found}

    @classmethod
    async def _lock_changed(
        cls, connection: AsyncConnection, job_ids: Collection[str], kept: Mapping[str, JobRow]
    ) -> dict[str, "JobWriter"]:
        """Lock the rows, and read those that are not as in `kept`."""
        locked = (await connection.execute(_LOCKED_REVISIONS, {"of_jobs": padded(job_ids)})).tuples().all()
        rows = {job_id: kept[job_id] for job_id, revision, _ in locked if kept[job_id].revision == revision}
        if changed := [job_id for job_id, _, _ in locked if job_id not in rows]:
            found = (await connection.execute(_ROWS, {"of_jobs": padded(changed)})).mappings()
            rows |= {row.id: row for row in map(job_row, found)}
        return {
            job_id: cls(connection, rows[job_id], Outbox(connection) if is_hooked else None)
            for job_id, _, is_hooked in locked
        }

    async def set(self, **changes: Any) -> None:
        """Change columns without an event: for progress that has its own tables."""
        changes["revision"] = self.job.revision + 1
        await self._write(changes)

    def defer(self, **changes: Any) -> None:
        """Change columns as `set` does, together with the next write or `flush_all`: steps arrive in batches."""
        if changes:
            self._deferred |= changes
            self.job = _changed(self.job, changes)

    def read_deferred(self) -> dict[str, Any]:
        """Return the columns that are deferred, for the caller to write them; empty if there are none."""
        if not self._deferred:
            return {}
        revision = self.job.revision + 1
        changes, self._deferred = {**self._deferred, "revision": revision}, {}
        self.job = _changed(self.job, {"revision": revision})
        return changes

    async def record(
        self,
        kind: str,
        data: Mapping[str, Any],
        *,
        time_s: float,
        actor: str,
        key: str | None = None,
        generation: int | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> int:
        """Write an event together with its changes of the row, its notice, and its deliveries to hooks.

        Returns:
            The number of the event, which is the row's new version.
        """
        number = self.job.version + 1
        await self._write({**(changes or {}), "version": number, "revision": self.job.revision + 1})
        of_generation = self.job.generation if generation is None else generation
        await self.connection.execute(
            events.insert().values(
                job_id=self.job.id,
                number=number,
                key=key,
                type=kind,
                time_s=time_s,
                generation=of_generation,
                actor=actor,
                data=plain(data),
            )
        )
        await record_notices(self.connection, [Notice.of_job(self.job, kind, time_s)])
        if self._outbox is not None:
            await self._outbox.add(
                self.job, kind, data, number=number, generation=of_generation, actor=actor, time_s=time_s
            )
        return number

    async def apply(
        self,
        transition: Transition,
        *,
        now: float,
        actor: str,
        key: str | None = None,
        error: Mapping[str, Any] | None = None,
        allocate: tuple[Allocation, ...] = (),
    ) -> None:
        """Change the state of a job: check the transition, write its event, and write or release allocations.

        No other code changes the state.

        Args:
            transition: result of `states.check_transition`, checked again against the locked row.
            allocate: allocations of the job. They are written before the objects are created.

        Raises:
            IllegalTransitionError: the job's state has changed since, or the transition is illegal.
            ConflictError: a name in `allocate` is already allocated.
        """
        job, target = self.job, transition.target
        if transition.source is not job.state:
            raise IllegalTransitionError(
                f"job {job.id} is {job.state}, no longer {transition.source}; read the job again and decide again"
            )
        checked = check_transition(job.id, job.state, target, transition.reason, plain(transition.message))
        changes: dict[str, Any] = {"state": target, "reason": checked.reason, "message": checked.message}
        if error is not None:
            changes["error"] = plain(error)
        if job.state is JobState.QUEUED or target.is_terminal:
            changes["conditions"] = []  # these are the reasons why it waited or was held
        elif any(each.type == TERMINATING for each in job.conditions):
            lasting = [each for each in job.conditions if each.type != TERMINATING]
            changes["conditions"] = [dataclasses.asdict(each) for each in lasting]
        if target is JobState.QUEUED:
            kept = {name: intent for name, intent in job.intents.items() if name != "preempt"}
            changes |= {"layout": None, "intents": kept}
            if job.state is not JobState.PLACING:  # a job that got no devices keeps its place in the queue
                changes["queued_at"] = now
        if target is JobState.STARTING and job.started_at is None:
            changes["started_at"] = now
        if target is not JobState.STARTING:
            changes["phase"] = None  # phases are the progress of starting
        if target.is_terminal:
            changes["finished_at"] = now
        data: dict[str, Any] = {"from": job.state, "to": target, "reason": checked.reason, "message": checked.message}
        if error is not None:
            data["error"] = dict(error)
        if not target.has_allocations:
            changes |= {"mirrored_step": None, "save": None}  # the memory of its nodes is released
        await self.record("state", data, time_s=now, actor=actor, key=key, changes=changes)
        if not target.has_allocations:
            await self._release(now)
        self.has_reallocated |= bool(allocate) or not target.has_allocations
        await self._allocate(allocate, now)
        if target is JobState.QUEUED and (intent := self.job.intents.get(SUSPEND)) is not None:
            # A job with this intent must not wait in the queue. One transaction, so that no pass admits it in between.
            await self.move(JobState.SUSPENDED, Reason.SUSPENDED, str(intent["why"]), now=now, actor=actor)

    async def reallocate(
        self,
        allocate: tuple[Allocation, ...],
        release: Sequence[str],
        assignment: Mapping[str, Any] | None,
        history: Mapping[str, Any] | None,
        now: float,
    ) -> None:
        """Change the allocations of a live job. See `Store.reallocate`."""
        self.has_reallocated = True
        live = sa.and_(allocations.c.job_id == self.job.id, allocations.c.released_at.is_(None))
        if release:
            named = sa.and_(live, allocations.c.name.in_(release))
            await self.connection.execute(allocations.update().where(named).values(released_at=now))
        await self._allocate(allocate, now)
        if assignment is not None:
            supervisor = sa.and_(live, allocations.c.kind == AllocationKind.SUPERVISOR)
            await self.connection.execute(allocations.update().where(supervisor).values(data=plain(assignment)))
        if history is not None:
            lost = tuple(f"node {name}: " for name in history.get("lost", ()))
            kept = [each for each in self.job.conditions if each.type != NODE_WELL or not each.message.startswith(lost)]
            changes = {"conditions": [dataclasses.asdict(each) for each in kept]}
            await self.record("nodes", history, time_s=now, actor="controller", changes=changes)

    async def move(self, target: JobState, reason: Reason, message: str = "", **options: Any) -> None:
        """Apply a transition from the row's current state."""
        await self.apply(check_transition(self.job.id, self.job.state, target, reason, message), **options)

    async def _write(self, changes: dict[str, Any]) -> None:
        changes, self._deferred = {**self._deferred, **changes}, {}
        await self.connection.execute(_CHANGED, {"of_job": self.job.id, **changes})
        if "conditions" in changes:
            changes = {**changes, "conditions": tuple(Condition(**item) for item in changes["conditions"])}
        self.job = _changed(self.job, changes)

    async def _release(self, now: float) -> None:
        held = allocations.update().where(allocations.c.job_id == self.job.id, allocations.c.released_at.is_(None))
        await self.connection.execute(held.values(released_at=now))

    async def _allocate(self, allocate: tuple[Allocation, ...], now: float) -> None:
        if not allocate:
            return
        values = [{**dataclasses.asdict(item), "data": plain(item.data), "created_at": now} for item in allocate]
        try:
            await self.connection.execute(allocations.insert(), values)
        except exc.IntegrityError as error:
            names = ", ".join(item.name for item in allocate)
            raise ConflictError(f"one of these names is already allocated: {names}; release it first") from error


def _changed(job: JobRow, changes: Mapping[str, Any]) -> JobRow:
    """Return the row with other values. `replace` would set all 47 fields of the frozen class one by one."""
    row = object.__new__(JobRow)
    vars(row).update(vars(job), **changes)
    return row


async def flush_all(connection: AsyncConnection, writers: Iterable[JobWriter]) -> None:
    """Write what is deferred in the rows of several jobs, with one statement for each set of columns."""
    same = defaultdict[tuple[str, ...], list[dict[str, Any]]](list)
    for writer in writers:
        if changes := writer.read_deferred():
            same[tuple(sorted(changes))].append({"of_job": writer.job.id, **changes})
    for rows in same.values():
        await connection.execute(_CHANGED, rows)


def padded(values: Collection[str]) -> list[str]:
    """Return the values, the last one repeated up to a power of two: a statement exists in few lengths."""
    found = list(values)
    missing = (1 << (len(found) - 1).bit_length()) - len(found) if found else 0
    return found + found[-1:] * missing
