"""The store: the persistent state of the control plane, one method per transaction.

The controller writes under its `Lease`. A write with a lost lease raises `PreconditionError`: stop leading then.

A transition to a state without allocations releases the job's allocations in the same transaction, by `apply` or by an
ingested `state` event. A job's `intents` are orders for its supervisor, e.g. `cancel` and `pins`.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from regroup.service.domain.author import Author
from regroup.service.domain.errors import ConflictError, IllegalTransitionError, NotFoundError
from regroup.service.domain.job_events import IncidentRevised
from regroup.service.domain.states import JobState, Reason, Transition
from regroup.service.domain.step_columns import StepColumns
from regroup.service.policy.lost_time import GenerationProgress
from regroup.service.store import history
from regroup.service.store.access.audit import AuditStore, Change, audited, record_change
from regroup.service.store.access.identities import IdentityStore
from regroup.service.store.curves import CurveStore
from regroup.service.store.hooks.hook_store import HookStore
from regroup.service.store.job_transactions import JobTransactions
from regroup.service.store.jobs import jobs
from regroup.service.store.jobs.generation_progress import PROGRESS_BATCH, progress_of_jobs
from regroup.service.store.jobs.incident_rows import write_incident
from regroup.service.store.jobs.ingest import Report
from regroup.service.store.jobs.job_writer import Intending
from regroup.service.store.jobs.totals import TotalsStore
from regroup.service.store.ledger import ledger_of
from regroup.service.store.live_jobs import LiveJobs, read_allocations
from regroup.service.store.nodes import NodeStore
from regroup.service.store.notices.notice_store import NoticeStore
from regroup.service.store.overview import OverviewStore
from regroup.service.store.predictions import PredictionStore
from regroup.service.store.projects import QueueStore
from regroup.service.store.reliability import ReliabilityStore
from regroup.service.store.report_groups import ReportGroups
from regroup.service.store.retention import RetentionStore
from regroup.service.store.rows.records import (
    Allocation,
    Checkpoint,
    Condition,
    Event,
    Generation,
    Incident,
    JobFilter,
    JobPosition,
    JobRow,
    Lease,
    Ledger,
    Page,
    Step,
)
from regroup.service.store.rows.reported_conditions import Reported
from regroup.service.store.schema.tables import checkpoints
from regroup.service.store.secrets.secret_store import SecretStore
from regroup.service.store.story import StoryStore
from regroup.service.store.submissions import SubmissionStore
from regroup.service.store.transactions import leases
from regroup.service.store.transactions.change_notifier import Changes
from regroup.service.store.transactions.database import Database
from regroup.service.store.transactions.idempotency import IdempotencyStore
from regroup.service.store.usage import UsageStore
from regroup.service.store.verdicts import VerdictStore

_CONTROLLER = "controller"


class Store:
    """The only access to the database."""

    def __init__(self, database: Database, idempotency_kept_s: float = 86_400.0) -> None:
        self._database = database
        self.changes = Changes()
        self.queue = QueueStore(database, self.changes)
        self.nodes = NodeStore(database, self.changes)
        self.notices = NoticeStore(database)
        self.curves = CurveStore(database)
        self.stories = StoryStore(database)
        self.predictions = PredictionStore(database, self.changes)
        self.identities = IdentityStore(database)
        self.audit = AuditStore(database)
        self.hooks = HookStore(database)
        self.secrets = SecretStore(database)
        self.live = LiveJobs(database)
        self._transactions = JobTransactions(database, self.changes, self.live)
        self._reports = ReportGroups(self._transactions)
        self.totals = TotalsStore(database)
        self.retention = RetentionStore(database)
        self.idempotency = IdempotencyStore(database, idempotency_kept_s)
        self.usage = UsageStore(database)
        self.reliability = ReliabilityStore(database)
        self.verdicts = VerdictStore(database)
        self.overview = OverviewStore(database)
        self.submissions = SubmissionStore(database, self.changes, self.idempotency)

    @classmethod
    async def open(cls, url: str, *, idempotency_kept_s: float = 86_400.0) -> "Store":
        """Connect, migrate, and on SQLite lock the file. Responses of idempotency keys are kept for a time."""
        return cls(await Database.open(url), idempotency_kept_s)

    async def close(self) -> None:
        """Close the connections and release the file lock."""
        await self.submissions.finish()
        await self._reports.finish()
        await self._database.close()

    async def ping(self) -> None:
        """Check that the database answers; raise UnavailableError if it does not."""
        await self._database.ping()

    # ------------------------------------------------------------ leader election

    async def acquire_lease(self, holder: str, ttl_s: float) -> Lease | None:
        """Acquire the lease; None while another process leads. On SQLite there is no other, so it never waits."""
        async with self._database.write() as connection:
            now = await self._database.now(connection)
            return await leases.acquire(connection, holder, ttl_s, now, single_process=self._database.single_process)

    async def renew_lease(self, lease: Lease, ttl_s: float) -> None:
        """Extend the lease by `ttl_s` from now; raise PreconditionError if another process leads."""
        async with self._database.write() as connection:
            await leases.renew(connection, lease, ttl_s, await self._database.now(connection))

    async def release_lease(self, lease: Lease) -> None:
        """Release the lease, so that another process can lead at once."""
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
        """Write a checked state transition with its event and allocations. See `JobWriter.apply` for its errors."""
        async with self._transactions.open(transition.job_id, lease) as writer:
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
        """Change the allocations of a running job: add rows before their objects are created, and release others.

        Args:
            release: names of the allocations to release.
            assignment: new data of the supervisor's row.
            history: data of an event `nodes`.

        Raises:
            ConflictError: a name in `allocate` is already allocated.
            IllegalTransitionError: the job has no allocations.
        """
        async with self._transactions.open(job_id, lease) as writer:
            if not writer.job.state.has_allocations:
                raise IllegalTransitionError(f"job {job_id} is {writer.job.state}: it has no allocations to change")
            await writer.reallocate(tuple(allocate), release, assignment, history, now)

    async def ingest(
        self,
        lease: Lease,
        job_id: str,
        boot_id: str,
        reported: Sequence[Reported],
        status: Mapping[str, Any],
        delay_s: float = 0.0,
        steps: StepColumns | None = None,
    ) -> JobRow:
        """Ingest new events of a supervisor, and its status (`goodput`, `reported_at`, `ranks`; None: as before).

        Reports of several jobs share a transaction. This one waits up to `delay_s` seconds for those of other jobs. The
        `acked_seq` of the returned row is the newest ingested sequence number. If `steps` is None, they are events.
        """
        return await self._reports.ingest(lease, job_id, Report.of(boot_id, reported, status, steps), delay_s)

    async def record_incident(self, lease: Lease, job_id: str, incident: IncidentRevised, *, now: float) -> None:
        """Record an incident that no supervisor can report. A repetition has no effect."""
        key = f"incident:{incident.id}:{incident.revision}"
        async with self._transactions.open(job_id, lease) as writer:
            if all(each.id != incident.id for each in await history.incidents_of(writer.connection, job_id)):
                await write_incident(writer, incident, key=key, time_s=now, actor=_CONTROLLER)

    async def set_conditions(self, lease: Lease, job_id: str, conditions: Sequence[Condition], *, now: float) -> None:
        """Set the conditions of a job, without an event: the history contains only what happened."""
        async with self._transactions.open(job_id, lease) as writer:
            before = {condition.type: condition for condition in writer.job.conditions}
            stamped: list[Condition] = []
            for condition in conditions:
                old = before.get(condition.type)
                since = old.last_transition_time if old and old.status == condition.status else now
                stamped.append(dataclasses.replace(condition, last_transition_time=since))
            if tuple(stamped) != writer.job.conditions:
                await writer.set(conditions=[dataclasses.asdict(condition) for condition in stamped])

    # ------------------------------------------------------------ requests of users

    async def cancel(self, job_id: str, *, now: float, author: Author) -> JobRow:
        """Cancel a queued or suspended job at once; record the intent for any other. A repetition has no effect.

        Raises:
            ConflictError: the job has ended, but was not cancelled.
        """
        async with self._transactions.open(job_id) as writer, audited(writer, author, "jobs.cancel", now):
            job, actor = writer.job, author.name
            if job.state in (JobState.QUEUED, JobState.SUSPENDED):
                await writer.move(JobState.CANCELLED, Reason.CANCELLED_BY_USER, now=now, actor=actor)
            elif job.state.is_terminal and job.state is not JobState.CANCELLED:
                raise ConflictError(
                    f"job {job_id} is already {job.state}; only a job that has not ended can be cancelled"
                )
            elif not job.state.is_terminal and not job.intents.get("cancel"):
                intents = {**job.intents, "cancel": True}
                await writer.record("intent", {"cancel": True}, time_s=now, actor=actor, changes={"intents": intents})
        return writer.job

    async def intend(self, job_id: str, change: Intending, *, now: float, author: Author, action: str) -> JobRow:
        """Update a job's intents with the result of `change`; None removes an intent. Errors of `change` propagate.

        Args:
            action: name of the change in audit records.
        """
        async with self._transactions.open(job_id) as writer, audited(writer, author, action, now):
            changed = change(writer.job)
            intents = {name: value for name, value in {**writer.job.intents, **changed}.items() if value is not None}
            if intents != writer.job.intents:
                await writer.record("intent", changed, time_s=now, actor=author.name, changes={"intents": intents})
        return writer.job

    async def release(self, job_id: str, *, now: float, author: Author) -> JobRow:
        """Record the intent to release a held job. A repetition has no effect.

        Raises:
            ConflictError: the job is not held.
        """
        async with self._transactions.open(job_id) as writer, audited(writer, author, "jobs.release", now):
            job = writer.job
            if not job.is_held:
                raise ConflictError(f"job {job_id} is {job.state} and not held: there is nothing to release")
            if not job.intents.get("release"):
                intents, data = {**job.intents, "release": True}, {"release": True}
                await writer.record("intent", data, time_s=now, actor=author.name, changes={"intents": intents})
        return writer.job

    async def note(self, job_id: str, kind: str, data: Mapping[str, Any], *, now: float, author: Author) -> None:
        """Record an action that does not change the job in its history; raise NotFoundError if it is missing."""
        async with self._transactions.open(job_id) as writer:
            await writer.record(kind, data, time_s=now, actor=author.name)
            change = Change(f"jobs.{kind}", job_id, writer.job.project, after=data)
            await record_change(writer.connection, author, change, now)

    async def pin(self, job_id: str, step: int, pinned: bool, *, now: float, author: Author) -> Checkpoint:
        """Pin the newest checkpoint of `step`, so that retention does not remove it; or unpin it.

        Raises:
            NotFoundError: there is no such checkpoint in storage.
        """
        action = "checkpoints.pin" if pinned else "checkpoints.unpin"
        async with self._transactions.open(job_id) as writer, audited(writer, author, action, now):
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
                data, changes = {**place, "pinned": pinned}, {"intents": intents}
                await writer.record("pin", data, time_s=now, actor=author.name, changes=changes)
        return dataclasses.replace(newest, pinned=pinned)

    # ------------------------------------------------------------ queries

    async def job(self, job_id: str) -> JobRow:
        """Return the job with this id; raise NotFoundError if there is none."""
        async with self._database.read() as connection:
            return await jobs.get(connection, job_id)

    async def positions(self, job_ids: Collection[str]) -> dict[str, JobPosition]:
        """Return how far these jobs are, by id. Unknown jobs are left out."""
        if not job_ids:
            return {}
        async with self._database.read() as connection:
            return await jobs.positions(connection, job_ids)

    async def find_job(self, reference: str, project: str) -> JobRow:
        """Return the job with this id, else the live or newest one with this name; raise NotFoundError if none."""
        async with self._database.read() as connection:
            return await jobs.find(connection, reference, project)

    async def jobs_with_ids(self, job_ids: Collection[str]) -> list[JobRow]:
        """Return the jobs with these ids, in any order. Ids without a job are left out."""
        async with self._database.read() as connection:
            return await jobs.with_ids(connection, job_ids)

    async def page(self, job_filter: JobFilter, after: str | None, limit: int) -> Page:
        """Return jobs, the newest first, after the one with id `after`."""
        async with self._database.read() as connection:
            return await jobs.page(connection, job_filter, after, limit)

    async def queued_jobs(self) -> list[JobRow]:
        """Return the QUEUED jobs in order of submission."""
        async with self._database.read() as connection:
            return await jobs.in_states(connection, [JobState.QUEUED])

    async def live_jobs(self) -> list[JobRow]:
        """Return the jobs that may have allocations."""
        async with self._database.read() as connection:
            return await jobs.in_states(connection, [state for state in JobState if state.has_allocations])

    async def live_allocations(self, job_id: str | None = None) -> Sequence[Allocation]:
        """Return the live allocations, of one job or of all."""
        async with self._database.read() as connection:
            return await read_allocations(connection, None if job_id is None else [job_id])

    async def events(self, job_id: str, after: int = 0, limit: int = 1000) -> list[Event]:
        """Return the events with a number above `after`."""
        async with self._database.read() as connection:
            return await history.events_after(connection, job_id, after, limit)

    async def events_of_jobs(self, job_ids: Collection[str]) -> list[Event]:
        """Return all events of several jobs with short histories, those of each in order."""
        async with self._database.read() as connection:
            return await history.events_of_jobs(connection, job_ids)

    async def step_rows(self, job_id: str, after: int = 0, limit: int = 1000) -> list[Step]:
        """Return all rows with a number above `after`, superseded ones too, for followers."""
        async with self._database.read() as connection:
            return await history.step_rows_after(connection, job_id, after, limit)

    async def committed_steps(self, job_id: str, after_step: int = 0, limit: int | None = None) -> list[Step]:
        """Return the committed steps, sorted by step."""
        async with self._database.read() as connection:
            return await history.committed_steps(connection, job_id, after_step, limit)

    async def generations(self, job_id: str) -> list[Generation]:
        """Return the generations, the oldest first."""
        async with self._database.read() as connection:
            return await history.generations_of(connection, job_id)

    async def progress(self, job_id: str, first: int = 0) -> list[GenerationProgress]:
        """Return the progress of each generation from number `first` on, the oldest first."""
        return (await self.progress_of_jobs({job_id: first}))[job_id]

    async def progress_of_jobs(self, firsts: Mapping[str, int]) -> Mapping[str, list[GenerationProgress]]:
        """Return the progress of jobs by their ids: job → number of the first generation to read. The oldest first."""
        found = dict[str, list[GenerationProgress]]()
        for some in jobs.batched(list(firsts), PROGRESS_BATCH):
            async with self._database.read() as connection:
                found |= await progress_of_jobs(connection, {job_id: firsts[job_id] for job_id in some})
        return found

    async def newest_generation_and_incidents(self, job_id: str) -> tuple[Generation | None, list[Incident]]:
        """Return the newest generation, None before the first one, and all incidents, the oldest first."""
        async with self._database.read() as connection:
            newest = await history.newest_generation(connection, job_id)
            return newest, await history.incidents_of(connection, job_id)

    async def incidents(self, job_id: str) -> list[Incident]:
        """Return the incidents, the oldest first."""
        async with self._database.read() as connection:
            return await history.incidents_of(connection, job_id)

    async def checkpoints(self, job_id: str, removed: bool = False) -> list[Checkpoint]:
        """Return the checkpoints, sorted by step. With `removed`, include those that are no longer in storage."""
        async with self._database.read() as connection:
            return await history.checkpoints_of(connection, job_id, removed)

    async def ledger(self, job_id: str) -> Ledger:
        """Return the ledger, folded over all rows of the job, or as it was stored before they were removed."""
        async with self._database.read_snapshot() as connection:
            job = await jobs.get(connection, job_id)
            return await ledger_of(connection, job, await history.generations_of(connection, job_id))

    async def own_key(self, name: str) -> str:
        """Return a secret of this deployment. The first call creates it."""
        async with self._database.write() as connection:
            return await jobs.own_key(connection, name)
