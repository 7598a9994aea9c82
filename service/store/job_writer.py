"""The only code that writes a job's row. Every event is one version of it: gapless, in commit order."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.errors import ConflictError, IllegalTransitionError, NotFoundError, PreconditionError
from regroup.service.domain.states import JobState, Reason, Transition, check_transition
from regroup.service.store.json_values import plain
from regroup.service.store.records import NODE_WELL, Allocation, AllocationKind, Condition, JobRow
from regroup.service.store.tables import allocations, events, jobs


def job_row(row: Mapping[str, Any]) -> JobRow:
    """A stored row as its record."""
    fields = dict(row)
    fields["state"] = JobState(fields["state"])
    fields["conditions"] = tuple(Condition(**item) for item in fields["conditions"])
    return JobRow(**fields)


Intending = Callable[[JobRow], Mapping[str, Any]]
"""What of a job's intents is to be other, by its row."""


SUSPEND = "suspend"
"""Intent that a job stays suspended: `{why, requested_s}`, from the request until the job is resumed."""


class JobWriter:
    """A job's row, locked until the transaction ends."""

    def __init__(self, connection: AsyncConnection, job: JobRow) -> None:
        self.connection = connection
        self.job = job

    @classmethod
    async def lock(cls, connection: AsyncConnection, job_id: str) -> "JobWriter":
        """Lock and read the row.

        Raises:
            NotFoundError: no such job.
        """
        query = sa.select(jobs).where(jobs.c.id == job_id).with_for_update()
        row = (await connection.execute(query)).mappings().one_or_none()
        if row is None:
            raise NotFoundError(f"no job {job_id!r}")
        return cls(connection, job_row(dict(row)))

    def expect_version(self, version: int | None) -> None:
        """Raises PreconditionError if the row is at another version; None accepts any."""
        if version is not None and version != self.job.version:
            raise PreconditionError(f"job {self.job.id} is at version {self.job.version}, not {version}; read it again")

    async def set(self, **changes: Any) -> None:
        """Change columns without an event: progress that has tables of its own."""
        changes["revision"] = self.job.revision + 1
        await self._write(changes)

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
        """Write an event and, in the same breath, what it changes on the row.

        Returns:
            The event's number: the row's new version.
        """
        number = self.job.version + 1
        await self._write({**(changes or {}), "version": number, "revision": self.job.revision + 1})
        await self.connection.execute(
            events.insert().values(
                job_id=self.job.id,
                number=number,
                key=key,
                type=kind,
                time_s=time_s,
                generation=self.job.generation if generation is None else generation,
                actor=actor,
                data=plain(data),
            )
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
        """The one way a job changes state: checked, with its event, allocations written or released beside it.

        Args:
            transition: from `states.advance`; checked again against the locked row.
            allocate: what the job may own from now on; written before any of it is made.

        Raises:
            IllegalTransitionError: the job has moved on meanwhile, or the table has no such arrow.
            ConflictError: one of the names in `allocate` is live already.
        """
        job, target = self.job, transition.target
        if transition.source is not job.state:
            raise IllegalTransitionError(
                f"job {job.id} is {job.state}, no longer {transition.source}; read it again and decide anew"
            )
        checked = check_transition(job.id, job.state, target, transition.reason, plain(transition.message))
        changes: dict[str, Any] = {"state": target, "reason": checked.reason, "message": checked.message}
        if error is not None:
            changes["error"] = plain(error)
        if job.state is JobState.QUEUED or target.is_terminal:
            changes["conditions"] = []  # they said why it waited, or was held
        if target is JobState.QUEUED:
            kept = {name: intent for name, intent in job.intents.items() if name != "preempt"}
            changes |= {"queued_at": now, "layout": None, "intents": kept}
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
            changes["mirrored_step"] = None  # the memory of its nodes is given back
        await self.record("state", data, time_s=now, actor=actor, key=key, changes=changes)
        if not target.has_allocations:
            await self._release(now)
        await self._allocate(allocate, now)
        if target is JobState.QUEUED and (intent := self.job.intents.get(SUSPEND)) is not None:
            # Whatever brought it here, it waits for nothing: in one breath, so that nobody gives it a turn meanwhile.
            await self.move(JobState.SUSPENDED, Reason.SUSPENDED, str(intent["why"]), now=now, actor=actor)

    async def reallocate(
        self,
        allocate: tuple[Allocation, ...],
        release: Sequence[str],
        assignment: Mapping[str, Any] | None,
        history: Mapping[str, Any] | None,
        now: float,
    ) -> None:
        """Other things for a live job to own; see `Store.reallocate`."""
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
        """`advance` from the state the row is in, then `apply`."""
        await self.apply(check_transition(self.job.id, self.job.state, target, reason, message), **options)

    async def _write(self, changes: dict[str, Any]) -> None:
        await self.connection.execute(jobs.update().where(jobs.c.id == self.job.id).values(**changes))
        if "conditions" in changes:
            changes = {**changes, "conditions": tuple(Condition(**item) for item in changes["conditions"])}
        self.job = dataclasses.replace(self.job, **changes)

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
            raise ConflictError(f"one of these names is live already: {names}; release it first") from error
