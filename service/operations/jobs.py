"""What can be asked of jobs. Knows no HTTP: the edge parses and prints, this decides and remembers.

A job is named by its id or by its name: the live job of that name in the project, else the latest one.
"""

import hashlib
import json
import secrets
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from regroup.service.blobs.store import BlobStore
from regroup.service.cluster_state.allocations import JobAllocations
from regroup.service.cluster_state.job_account import JobAccount
from regroup.service.cluster_state.queue import jobs_ahead
from regroup.service.domain.errors import ConflictError, FieldIssue, ForbiddenError, NotFoundError, SpecError
from regroup.service.domain.states import JobState
from regroup.service.operations.auto_layout import Planned, Planning
from regroup.service.operations.job_plan import Compared, JobPlan, compared, plan_of
from regroup.service.operations.projects import admitted, most_ranks
from regroup.service.operations.why import Why, explain
from regroup.service.policy.placement.demand import PlacementChoice
from regroup.service.spec.job import JobSpec
from regroup.service.store.history import usable
from regroup.service.store.records import (
    Checkpoint,
    Event,
    Generation,
    Incident,
    JobFilter,
    JobRow,
    Ledger,
    NewJob,
    Page,
    Step,
)
from regroup.service.store.store import Store

_ID_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_FOLLOW_POLL_S = 1.0  # writes of this process wake followers at once; this finds those of other replicas
_RECENT_STEPS = 100


class KeyReusedError(SpecError):
    """An idempotency key came back with another body."""


@dataclass(frozen=True)
class Submitted:
    """The answer to a submit."""

    job: JobRow
    replayed: bool
    """The same request was answered before; no job was made now."""


@dataclass(frozen=True)
class JobDetail:
    """A job with what stands beside its row."""

    job: JobRow
    incidents: list[Incident]
    generation: Generation | None
    """The newest."""
    compared: Compared | None = None
    """What was predicted of it, and what its steps took; None where nothing was predicted."""


class Jobs:
    """Asks of people and programs, answered from the store.

    Args:
        clock: Unix seconds.
        blobs: where the code of jobs is.
        planning: chooses layouts.
        storage_uri: where jobs without one of their own keep theirs.
        allow_faults: accept specs with `faults`.
        ageing_s: how long a job waits until it rises by a class of priority.
    """

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float],
        blobs: BlobStore,
        planning: Planning,
        *,
        storage_uri: str,
        allow_faults: bool,
        ageing_s: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._blobs = blobs
        self._planning = planning
        self._storage_uri = storage_uri
        self._allow_faults = allow_faults
        self._ageing_s = ageing_s

    async def submit(self, spec: JobSpec, *, actor: str, key: str | None = None) -> Submitted:
        """Queue a job.

        Args:
            key: idempotency key: the same key and spec within 24 hours name the same job, whatever failed between.

        Raises:
            SpecError: a field cannot be honoured.
            KeyReusedError: the key came with another spec before.
            ForbiddenError: the spec has faults or blinds detectors, and this server does not allow them, or asks for
                what its project does not admit.
            ConflictError: a live job of the project has the name.
        """
        body = _storable(spec)
        if (spec.faults or spec.disable_detectors) and not self._allow_faults:
            asked = "faults" if spec.faults else "disable_detectors"
            raise ForbiddenError(f"this server honours no `{asked}`; start it with --allow-faults to rehearse failures")
        scope, body_hash = f"{actor}:submit", hashlib.sha256(body.encode()).hexdigest()
        if key is not None and (answered := await self._answered(scope, key, body_hash)):
            return answered
        planned = await self.planned(spec)
        spec = await self._named_after(planned.spec)
        await self._find_code(spec)
        job_id = new_job_id(self._clock())
        new = NewJob(job_id, spec, self._storage_of(spec, job_id), await self._resume_uri(spec), planned.record)
        kept = None if key is None else (scope, key, body_hash)
        try:
            job = await self._store.submit(new, now=self._clock(), actor=actor, idempotency=kept)
        except ConflictError:
            # The same request may have been answered between our look and our write.
            if key is not None and (answered := await self._answered(scope, key, body_hash)):
                return answered
            raise
        return Submitted(job, replayed=False)

    async def planned(self, spec: JobSpec) -> Planned:
        """The spec as its project admits it, with a layout; what was planned is empty where the spec says the layout.

        Raises:
            SpecError, ForbiddenError: as `submit`.
            UnavailableError: there is a layout to choose, and the cluster does not say what nodes it has.
        """
        project = await self._store.queue.project(spec.project)
        spec = admitted(spec, project)
        if spec.layout.auto is None:
            return Planned(spec)
        planned = await self._planning.plan(spec, most_ranks(project))
        return replace(planned, spec=admitted(planned.spec, project))

    async def get(self, reference: str, project: str) -> JobRow:
        """The job of this id or name; raises NotFoundError."""
        return await self._store.find_job(reference, project)

    async def detail(self, job: JobRow) -> JobDetail:
        """The job with its incidents and its newest generation."""
        newest = (await self._store.generations(job.id))[-1:]
        beside = await compared(self._store, job.id, newest)
        incidents = await self._store.incidents(job.id)
        return JobDetail(job, incidents, newest[0] if newest else None, beside[0] if beside else None)

    async def plan(self, job: JobRow) -> JobPlan:
        """What was planned of a job, and what its generations came to."""
        return await plan_of(self._store, job)

    async def page(self, wanted: JobFilter, after: str | None, limit: int) -> Page:
        """Jobs, newest first."""
        return await self._store.page(wanted, after, limit)

    async def cancel(self, job: JobRow, *, actor: str, version: int | None = None) -> JobRow:
        """End a queued job at once, tell any other to stop. See `Store.cancel` for what it raises."""
        return await self._store.cancel(job.id, now=self._clock(), actor=actor, version=version)

    async def release(self, job: JobRow, *, actor: str) -> JobRow:
        """Hold a failed job no longer. See `Store.release` for what it raises."""
        return await self._store.release(job.id, now=self._clock(), actor=actor)

    async def events(self, job: JobRow, after: int, limit: int) -> list[Event]:
        """Events numbered above `after`."""
        return await self._store.events(job.id, after, limit)

    async def follow_events(self, job: JobRow, after: int) -> AsyncGenerator[Event | None]:
        """Events as they come, until the job is over and all are told; None while nothing happens."""
        while True:
            mark = self._store.changes.mark()
            over = (await self._store.job(job.id)).state.is_terminal
            found = await self._store.events(job.id, after)
            for event in found:
                after = event.number
                yield event
            if found:
                continue
            if over:
                return
            yield None
            await self._store.changes.wait(job.id, mark, _FOLLOW_POLL_S)

    async def steps(self, job: JobRow, after: int, limit: int) -> list[Step]:
        """Committed steps above step `after`; what a later generation did again is left out."""
        return await self._store.committed_steps(job.id, after, limit)

    async def follow_steps(self, job: JobRow, after: int) -> AsyncGenerator[Step | None]:
        """Step rows numbered above `after` as they come, to the end; a row replaces those of its step and later ones
        in older generations. None while nothing happens."""
        while True:
            mark = self._store.changes.mark()
            over = (await self._store.job(job.id)).state.is_terminal
            found = await self._store.step_rows(job.id, after)
            for row in found:
                after = row.number
                yield row
            if found:
                continue
            if over:
                return
            yield None
            await self._store.changes.wait(job.id, mark, _FOLLOW_POLL_S)

    async def incidents(self, job: JobRow) -> list[Incident]:
        """Oldest first."""
        return await self._store.incidents(job.id)

    async def generations(self, job: JobRow) -> list[Generation]:
        """Oldest first."""
        return await self._store.generations(job.id)

    async def checkpoints(self, job: JobRow, removed: bool) -> list[Checkpoint]:
        """By step; those no longer in storage only if `removed`."""
        return await self._store.checkpoints(job.id, removed)

    async def pin(self, job: JobRow, step: int, pinned: bool, *, actor: str) -> Checkpoint:
        """Keep a checkpoint from retention, or no longer; raises NotFoundError."""
        return await self._store.pin(job.id, step, pinned, now=self._clock(), actor=actor)

    async def ledger(self, job: JobRow) -> Ledger:
        """Whether every committed step saw exactly its samples, once."""
        return await self._store.ledger(job.id)

    async def why(self, job: JobRow) -> Why:
        """Why the job waits, failed or is slow, and what to do."""
        recent = await self._store.committed_steps(job.id, max(0, job.step - _RECENT_STEPS))
        account, now = JobAccount(job), self._clock()
        ahead = await jobs_ahead(self._store, job, now=now, ageing_s=self._ageing_s)
        await account.catch_up(self._store, job)
        incidents, choice = await self._store.incidents(job.id), await self._choice(job)
        return explain(job, incidents, recent, ahead, account.seconds(now), now, choice)

    async def _choice(self, job: JobRow) -> PlacementChoice | None:
        """Why the job's nodes are these, from what it was allocated with."""
        rows = await self._store.live_allocations(job.id)
        return JobAllocations(rows).assignment.choice if rows else None

    async def _answered(self, scope: str, key: str, body_hash: str) -> Submitted | None:
        kept = await self._store.remembered(scope, key, now=self._clock())
        if kept is None:
            return None
        if kept[0] != body_hash:
            issue = FieldIssue("Idempotency-Key", "came with another spec before; a new request needs a new key", key)
            raise KeyReusedError([issue])
        return Submitted(await self._store.job(kept[1]["job_id"]), replayed=True)

    async def _named_after(self, spec: JobSpec) -> JobSpec:
        """The spec with `depends_on` by id: what comes to have the name later is another job. So no circle can be closed."""
        found: list[str] = []
        for reference in spec.depends_on:
            try:
                other = await self._store.find_job(reference, spec.project)
            except NotFoundError as error:
                say = "a job cannot come after itself" if reference == spec.name else str(error)
                raise SpecError([FieldIssue("depends_on", say, reference)]) from error
            if other.state.is_terminal and other.state is not JobState.SUCCEEDED:
                say = f"job {other.name!r} ({other.id}) ended {other.state} ({other.reason}): nothing can come after it"
                raise SpecError([FieldIssue("depends_on", say, reference)])
            found.append(other.id)
        return spec.model_copy(update={"depends_on": found}) if found else spec

    async def _find_code(self, spec: JobSpec) -> None:
        if spec.code is not None and not await self._blobs.touch(spec.code.archive):
            say = (
                "this server has no such archive (it may have been removed after long disuse): upload the code again "
                "with `regroup submit SPEC --working-dir DIR` or Client.upload_working_dir"
            )
            raise SpecError([FieldIssue("code.archive", say, spec.code.archive)])

    def _storage_of(self, spec: JobSpec, job_id: str) -> str:
        base = spec.storage_uri or self._storage_uri
        if not urlsplit(base).scheme and not base.startswith("/"):
            say = "a relative path means another folder on every node; give an absolute path or a URI such as s3://bucket/x"
            raise SpecError([FieldIssue("storage_uri", say, base)])
        return f"{base.rstrip('/')}/jobs/{job_id}"

    async def _resume_uri(self, spec: JobSpec) -> str | None:
        if spec.resume_from is None:
            return None
        reference, _, wanted = spec.resume_from.partition("@")
        try:
            source = await self._store.find_job(reference, spec.project)
        except NotFoundError as error:
            raise SpecError([FieldIssue("resume_from", str(error), spec.resume_from)]) from error
        stored = usable(await self._store.checkpoints(source.id), await self._store.generations(source.id))
        fitting = [item for item in stored if wanted == "latest" or item.step == int(wanted)]
        if not fitting:
            there = ", ".join(str(item.step) for item in stored) or "none"
            say = f"job {source.id} has no such checkpoint; steps in storage: {there}"
            raise SpecError([FieldIssue("resume_from", say, spec.resume_from)])
        return fitting[-1].uri


def new_job_id(now: float) -> str:
    """`job_` and 18 digits that grow with time. With its underscore it can never be a job's name."""
    value = (int(now * 1000) << 40) | secrets.randbits(40)
    digits = [_ID_DIGITS[(value >> shift) & 31] for shift in range(85, -1, -5)]
    return "job_" + "".join(digits)


def _storable(spec: JobSpec) -> str:
    """Canonical JSON of the spec; refuses what JSON or a database cannot hold."""
    try:
        text = json.dumps(spec.model_dump(mode="json"), sort_keys=True, allow_nan=False, ensure_ascii=False)
        text.encode()
    except ValueError as error:
        say = f"only finite numbers and whole Unicode text can be kept: {error}"
        raise SpecError([FieldIssue("", say)]) from error
    if "\\u0000" in text:
        raise SpecError([FieldIssue("", "text must not contain the NUL character")])
    return text
