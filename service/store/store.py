"""The store: everything the control plane remembers, one method per transaction.

For the controller (all writes under its `Lease`; a lost lease raises `PreconditionError`, then stop leading):

    store = await Store.open("sqlite:////var/lib/regroup/regroup.db")
    lease = await store.acquire_lease(holder, ttl_s)         None while another leads; then renew_lease
    await store.queued_jobs(), await store.live_jobs()       those that wait, in order; those that hold devices
    await store.apply(lease, advance(...), now=..., allocate=(Allocation(...), ...))
    await store.ingest(lease, job_id, boot_id, events, status)     -> JobRow with acked_seq
    await store.set_conditions(lease, job_id, (Condition(...),), now=...)
    await store.live_allocations()                            what may exist; remove other actors and reservations

`apply` to a state that holds no devices releases the job's allocations in the same transaction; so does an ingested
`state` event. A job's `intents` are what the supervisor is to be told: `cancel`, `pins`.
"""

import dataclasses
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import sqlalchemy as sa

from regroup.service.domain.errors import ConflictError, IllegalTransitionError, NotFoundError
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import JobState, Reason, Transition
from regroup.service.policy.detection.node_quarantine import NodeEvent
from regroup.service.store import drains, history, jobs, leases, node_events
from regroup.service.store.change_notifier import Changes
from regroup.service.store.database import Database
from regroup.service.store.ingest import ingest
from regroup.service.store.job_writer import Intending, JobWriter
from regroup.service.store.predictions import PredictionStore
from regroup.service.store.projects import QueueStore
from regroup.service.store.records import (
    Allocation,
    Checkpoint,
    Condition,
    DrainRow,
    Event,
    Generation,
    Incident,
    JobFilter,
    JobRow,
    Lease,
    Ledger,
    NewJob,
    Page,
    Reported,
    Step,
    Totals,
)
from regroup.service.store.tables import allocations, checkpoints
from regroup.service.store.totals import totals

_CONTROLLER = "controller"
_IDEMPOTENCY_KEPT_S = 24 * 3600.0


class Store:
    """The only door to the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.changes = Changes()
        self.queue = QueueStore(database, self.changes)
        self.predictions = PredictionStore(database, self.changes)

    @classmethod
    async def open(cls, url: str) -> "Store":
        """Connect, migrate, and on SQLite take the file's lock. See `Database.open`."""
        return cls(await Database.open(url))

    async def close(self) -> None:
        """Give back connections and the file lock."""
        await self._database.close()

    async def ping(self) -> None:
        """Raises UnavailableError if the database does not answer."""
        await self._database.ping()

    # ------------------------------------------------------------ leading

    async def acquire_lease(self, holder: str, ttl_s: float) -> Lease | None:
        """Lead, or None while another does. On SQLite this process is the only one and never waits."""
        async with self._database.write() as connection:
            now = await self._database.now(connection)
            return await leases.acquire(connection, holder, ttl_s, now, single_process=self._database.single_process)

    async def renew_lease(self, lease: Lease, ttl_s: float) -> None:
        """Lead for `ttl_s` more; raises PreconditionError if another does."""
        async with self._database.write() as connection:
            await leases.renew(connection, lease, ttl_s, await self._database.now(connection))

    async def release_lease(self, lease: Lease) -> None:
        """Stop leading, so that another need not wait."""
        async with self._database.write() as connection:
            await leases.release(connection, lease)

    # ------------------------------------------------------------ the leader's writes

    async def apply(
        self,
        lease: Lease,
        transition: Transition,
        *,
        now: float,
        actor: str = _CONTROLLER,
        error: Mapping[str, Any] | None = None,
        allocate: Sequence[Allocation] = (),
    ) -> JobRow:
        """Write a checked state change with its event and allocations. See `JobWriter.apply` for what it raises."""
        async with self._job(transition.job_id, lease) as writer:
            await writer.apply(transition, now=now, actor=actor, error=error, allocate=tuple(allocate))
        return writer.job

    async def reallocate(
        self,
        lease: Lease,
        job_id: str,
        *,
        allocate: Sequence[Allocation] = (),
        release: Sequence[str] = (),
        assignment: Mapping[str, Any] | None = None,
        history: Mapping[str, Any] | None = None,
        now: float,
    ) -> None:
        """Change what a job that runs may own: name what is added before it is made, and what it has given up.

        Args:
            release: names.
            assignment: what the supervisor's own row says from now on.
            history: written as an event `nodes`.

        Raises:
            ConflictError: one of the names in `allocate` is live already.
            IllegalTransitionError: the job holds nothing any more.
        """
        async with self._job(job_id, lease) as writer:
            if not writer.job.state.has_allocations:
                raise IllegalTransitionError(f"job {job_id} is {writer.job.state}: it holds nothing to be changed")
            await writer.reallocate(tuple(allocate), release, assignment, history, now)

    async def ingest(
        self, lease: Lease, job_id: str, boot_id: str, reported: Sequence[Reported], status: Mapping[str, Any]
    ) -> JobRow:
        """Take in a supervisor's events, each once, and its status (`goodput`, `ranks`); `acked_seq` says how far."""
        async with self._job(job_id, lease) as writer:
            await ingest(writer, boot_id, reported, status)
        return writer.job

    async def set_conditions(self, lease: Lease, job_id: str, conditions: Sequence[Condition], *, now: float) -> None:
        """Say why the job is as it is. No event: the history shows what happened, not what did not."""
        async with self._job(job_id, lease) as writer:
            before = {condition.type: condition for condition in writer.job.conditions}
            stamped: list[Condition] = []
            for condition in conditions:
                old = before.get(condition.type)
                since = old.last_transition_time if old and old.status == condition.status else now
                stamped.append(dataclasses.replace(condition, last_transition_time=since))
            if tuple(stamped) != writer.job.conditions:
                await writer.set(conditions=[dataclasses.asdict(condition) for condition in stamped])

    async def note_node_faults(
        self, lease: Lease, faults: Sequence[NodeEvent], *, forget_before_s: float
    ) -> list[NodeEvent]:
        """Remember what happened to nodes, each once by its key, and forget what is older; returns what was new."""
        async with self._database.write() as connection:
            await leases.check(connection, lease)
            fresh = await node_events.add(connection, faults)
            await node_events.forget(connection, forget_before_s)
        for fault in fresh:
            self.changes.announce(fault.node)
        return fresh

    # ------------------------------------------------------------ what people ask for

    async def submit(
        self, new: NewJob, *, now: float, actor: str, idempotency: tuple[str, str, str] | None = None
    ) -> JobRow:
        """Queue a job.

        Args:
            idempotency: scope, key and hash of the body; the job's id is kept under them, in the same transaction.

        Raises:
            ConflictError: a live job has the name, or a request with the same key is being answered.
        """
        async with self._database.write() as connection:
            if idempotency is not None:
                answer = {"job_id": new.id}
                await jobs.remember(connection, *idempotency, answer, now, since=now - _IDEMPOTENCY_KEPT_S)
            job = await jobs.insert(connection, new, now, actor)
        self.changes.announce(job.id)
        return job

    async def remembered(self, scope: str, key: str, *, now: float) -> tuple[str, Any] | None:
        """Hash of the body and the answer that this key got within the last day."""
        async with self._database.read() as connection:
            return await jobs.remembered(connection, scope, key, now - _IDEMPOTENCY_KEPT_S)

    async def cancel(self, job_id: str, *, now: float, actor: str, version: int | None = None) -> JobRow:
        """End a queued job at once; write the intent on any other. Asking again changes nothing.

        Raises:
            PreconditionError: the job's version is not `version`.
            ConflictError: the job has ended otherwise.
        """
        async with self._job(job_id) as writer:
            job = writer.job
            writer.expect_version(version)
            if job.state in (JobState.QUEUED, JobState.SUSPENDED):
                await writer.move(JobState.CANCELLED, Reason.CANCELLED_BY_USER, now=now, actor=actor)
            elif job.state.is_terminal and job.state is not JobState.CANCELLED:
                raise ConflictError(
                    f"job {job_id} is {job.state} already; only a job that has not ended can be cancelled"
                )
            elif not job.state.is_terminal and not job.intents.get("cancel"):
                intents = {**job.intents, "cancel": True}
                await writer.record("intent", {"cancel": True}, time_s=now, actor=actor, changes={"intents": intents})
        return writer.job

    async def intend(self, job_id: str, change: Intending, *, now: float, actor: str) -> JobRow:
        """Add what `change` makes of a job's row to its intents, less what is None there; it may raise to refuse."""
        async with self._job(job_id) as writer:
            changed = change(writer.job)
            intents = {name: value for name, value in {**writer.job.intents, **changed}.items() if value is not None}
            if intents != writer.job.intents:
                await writer.record("intent", changed, time_s=now, actor=actor, changes={"intents": intents})
        return writer.job

    async def release(self, job_id: str, *, now: float, actor: str) -> JobRow:
        """Write the intent to hold a failed job no longer. Asking again changes nothing.

        Raises:
            ConflictError: it is not held.
        """
        async with self._job(job_id) as writer:
            job = writer.job
            if not job.is_held:
                raise ConflictError(f"job {job_id} is {job.state} and not held: there is nothing to let go")
            if not job.intents.get("release"):
                intents = {**job.intents, "release": True}
                await writer.record("intent", {"release": True}, time_s=now, actor=actor, changes={"intents": intents})
        return writer.job

    async def note(self, job_id: str, kind: str, data: Mapping[str, Any], *, now: float, actor: str) -> None:
        """Write into a job's history what somebody did that changes nothing of it; raises NotFoundError."""
        async with self._job(job_id) as writer:
            await writer.record(kind, data, time_s=now, actor=actor)

    async def pin(self, job_id: str, step: int, pinned: bool, *, now: float, actor: str) -> Checkpoint:
        """Keep the newest checkpoint of `step` from retention, or no longer.

        Raises:
            NotFoundError: no such checkpoint in storage.
        """
        async with self._job(job_id) as writer:
            stored = [item for item in await history.checkpoints_of(writer.connection, job_id) if item.step == step]
            if not stored:
                raise NotFoundError(f"job {job_id} has no checkpoint of step {step} in storage")
            newest = stored[-1]
            if newest.pinned != pinned:
                place = {"step": newest.step, "generation": newest.generation}
                row = checkpoints.update().where(
                    checkpoints.c.job_id == job_id, *(checkpoints.c[name] == value for name, value in place.items())
                )
                await writer.connection.execute(row.values(pinned=pinned))
                pins = [item for item in writer.job.intents.get("pins", []) if item != place]
                intents = {**writer.job.intents, "pins": [*pins, place] if pinned else pins}
                await writer.record(
                    "pin", {**place, "pinned": pinned}, time_s=now, actor=actor, changes={"intents": intents}
                )
        return dataclasses.replace(newest, pinned=pinned)

    async def note_node_order(self, order: NodeEvent) -> None:
        """Remember that somebody closed a node, or opened it again."""
        async with self._database.write() as connection:
            await node_events.add(connection, [order])
        self.changes.announce(order.node)

    # ------------------------------------------------------------ nodes that people want empty

    async def drain(self, row: DrainRow) -> DrainRow:
        """Want a node empty, or until another time; returns what is stored."""
        async with self._database.write() as connection:
            return await drains.put(connection, row)

    async def undrain(self, node_ids: Collection[str]) -> int:
        """Want these no longer empty; returns how many of them were."""
        async with self._database.write() as connection:
            return await drains.remove(connection, node_ids)

    async def drains(self) -> list[DrainRow]:
        """Nodes that are wanted empty."""
        async with self._database.read() as connection:
            return await drains.everything(connection)

    # ------------------------------------------------------------ reading

    async def job(self, job_id: str) -> JobRow:
        """The job with this id; raises NotFoundError."""
        async with self._database.read() as connection:
            return await jobs.get(connection, job_id)

    async def find_job(self, reference: str, project: str) -> JobRow:
        """The job with this id, else the live, else the latest one of this name; raises NotFoundError."""
        async with self._database.read() as connection:
            return await jobs.find(connection, reference, project)

    async def page(self, job_filter: JobFilter, after: str | None, limit: int) -> Page:
        """Jobs, newest first, after the one with id `after`."""
        async with self._database.read() as connection:
            return await jobs.page(connection, job_filter, after, limit)

    async def queued_jobs(self) -> list[JobRow]:
        """QUEUED jobs in order of submission."""
        async with self._database.read() as connection:
            return await jobs.in_states(connection, [JobState.QUEUED])

    async def live_jobs(self) -> list[JobRow]:
        """Jobs that hold devices, or may."""
        async with self._database.read() as connection:
            return await jobs.in_states(connection, [state for state in JobState if state.has_allocations])

    async def live_allocations(self, job_id: str | None = None) -> list[Allocation]:
        """Everything that may exist in the cluster, of one job or all."""
        names = [field.name for field in dataclasses.fields(Allocation)]
        query = sa.select(*(allocations.c[name] for name in names)).where(allocations.c.released_at.is_(None))
        if job_id is not None:
            query = query.where(allocations.c.job_id == job_id)
        async with self._database.read() as connection:
            rows = (await connection.execute(query.order_by(allocations.c.id))).mappings()
            return [Allocation.from_row(row) for row in rows]

    async def node_events(self) -> list[NodeEvent]:
        """What happened to nodes, as far as it is kept."""
        async with self._database.read() as connection:
            return await node_events.all_events(connection)

    async def events(self, job_id: str, after: int = 0, limit: int = 1000) -> list[Event]:
        """Events numbered above `after`."""
        async with self._database.read() as connection:
            return await history.events_after(connection, job_id, after, limit)

    async def step_rows(self, job_id: str, after: int = 0, limit: int = 1000) -> list[Step]:
        """All rows numbered above `after`, superseded ones too: what a follower reads."""
        async with self._database.read() as connection:
            return await history.step_rows_after(connection, job_id, after, limit)

    async def committed_steps(self, job_id: str, after_step: int = 0, limit: int | None = None) -> list[Step]:
        """The history that counts, by step."""
        async with self._database.read() as connection:
            return await history.committed_steps(connection, job_id, after_step, limit)

    async def generations(self, job_id: str) -> list[Generation]:
        """Oldest first."""
        async with self._database.read() as connection:
            return await history.generations_of(connection, job_id)

    async def incidents(self, job_id: str) -> list[Incident]:
        """Oldest first."""
        async with self._database.read() as connection:
            return await history.incidents_of(connection, job_id)

    async def checkpoints(self, job_id: str, removed: bool = False) -> list[Checkpoint]:
        """By step; those no longer in storage only if `removed`."""
        async with self._database.read() as connection:
            return await history.checkpoints_of(connection, job_id, removed)

    async def ledger(self, job_id: str) -> Ledger:
        """Whether every committed step saw exactly its samples, once."""
        async with self._database.read() as connection:
            job = await jobs.get(connection, job_id)
            rows = await history.step_rows_after(connection, job_id, 0, job.step_rows)
            formed = await history.generations_of(connection, job_id)
        spec = job.parsed_spec()
        samples = {found.number: spec.samples_per_step(Layout(**found.layout)) for found in formed}
        return history.fold(rows, formed, samples, job.step)

    async def totals(self, now: float) -> Totals:
        """Sums over the whole store, for the metrics."""
        async with self._database.read() as connection:
            return await totals(connection, now)

    async def own_key(self, name: str) -> str:
        """A secret this deployment made for itself."""
        async with self._database.write() as connection:
            return await jobs.own_key(connection, name)

    @asynccontextmanager
    async def _job(self, job_id: str, lease: Lease | None = None) -> AsyncGenerator[JobWriter]:
        async with self._database.write() as connection:
            if lease is not None:
                await leases.check(connection, lease)
            writer = await JobWriter.lock(connection, job_id)
            revision = writer.job.revision
            yield writer
        if writer.job.revision != revision:
            self.changes.announce(job_id)
