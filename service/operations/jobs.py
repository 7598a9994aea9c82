"""Use cases of jobs. This module knows no HTTP: routes parse requests and format answers.

A reference to a job is its id or its name. A name means the live job of that name in the project, else the newest one.
"""

import asyncio
import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace

from regroup.service.blobs.store import BlobStore
from regroup.service.cluster_state.allocations import JobAllocations
from regroup.service.cluster_state.job_account import JobAccount
from regroup.service.cluster_state.queue_positions import QueuePositions
from regroup.service.domain.author import Author
from regroup.service.domain.errors import (
    ConflictError,
    FieldIssue,
    ForbiddenError,
    NotFoundError,
    QueueLimitError,
    SpecError,
)
from regroup.service.domain.identity import IdentityKind
from regroup.service.domain.limits import Limit
from regroup.service.domain.states import JobState
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.auto_layout import LayoutPlanner, PlannedSpec
from regroup.service.operations.budgets import check_budgets
from regroup.service.operations.followers import Entry, Followers
from regroup.service.operations.job_id import new_job_id
from regroup.service.operations.job_plan import JobPlan, PredictionComparison, compare_generations, get_job_plan
from regroup.service.operations.placement_explanation import PlacementExplanation, explain_placement
from regroup.service.operations.projects import apply_project, max_ranks
from regroup.service.operations.secrets import check_secrets
from regroup.service.operations.why import Why, explain
from regroup.service.spec.clusters import ONE_CLUSTER, ClusterNames
from regroup.service.spec.isolation import check_isolation
from regroup.service.spec.job import JobSpec
from regroup.service.spec.prices import PriceTable
from regroup.service.store.history import usable
from regroup.service.store.jobs.jobs import unknown_job
from regroup.service.store.rows.records import (
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
from regroup.service.store.transactions.idempotency import RequestKey

_RECENT_STEPS = 100
_RETAINED_ACCOUNTS = 200


class KeyReusedError(SpecError):
    """A client used an idempotency key again with another body."""


@dataclass(frozen=True)
class Submission:
    """Result of a submit."""

    job: JobRow
    replayed: bool
    """True if the same request was answered before, so no job was created."""


@dataclass(frozen=True)
class JobDetail:
    """A job with the records that belong to it."""

    job: JobRow
    incidents: list[Incident]
    generation: Generation | None
    """The newest generation."""
    comparison: PredictionComparison | None = None
    """Predicted and measured metrics of that generation; None without a prediction."""


class Jobs:
    """Use cases of jobs.

    Args:
        clock: Unix seconds.
        blobs: store of the jobs' code.
        planner: chooses layouts.
        storage_uri: durable storage of jobs whose spec has no `storage_uri`.
        allow_faults: accept specs with `faults`.
        positions: positions of jobs in the queue.
        followers: reader for all that follow jobs.
        most_queued: largest number of queued and suspended jobs of one identity; 0 for no limit.
        refusals: counts the refusals of limits.
        prices: price table; None if the operator set none.
        rank_users: range of user ids for the processes of jobs; the user of the agents if empty.
        clusters: clusters that jobs can name.
    """

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float],
        blobs: BlobStore,
        planner: LayoutPlanner,
        *,
        storage_uri: str,
        allow_faults: bool,
        positions: QueuePositions,
        followers: Followers,
        prices: PriceTable | None = None,
        most_queued: int = 0,
        refusals: Counter[Limit] | None = None,
        rank_users: str = "",
        clusters: ClusterNames = ONE_CLUSTER,
    ) -> None:
        self._store, self._clock, self._blobs, self._planner = store, clock, blobs, planner
        self._storage_uri = storage_uri
        self._allow_faults = allow_faults
        self._positions = positions
        self._accounts: dict[str, JobAccount] = {}
        """Accounts of the jobs that were explained last, the oldest first."""
        self._accounting = asyncio.Lock()
        self._followers = followers
        self._prices, self._most_queued = prices, most_queued
        self._refusals = Counter[Limit]() if refusals is None else refusals
        self._rank_users, self._clusters = rank_users, clusters

    async def submit(self, spec: JobSpec, sender: Sender, *, key: str | None = None) -> Submission:
        """Queue a job.

        Args:
            key: idempotency key. The same key and spec within 24 hours return the same job.

        Raises:
            NotFoundError: the sender does not see the project.
            SpecError: a field is invalid on this server.
            KeyReusedError: the key was used before with another spec.
            ForbiddenError: the sender lacks a permission; or the spec has faults or disables detectors, and this server
                does not allow that; or the project does not allow the resources.
            ConflictError: a live job of the project has the same name.
            QueueLimitError: too many jobs of the sender are queued or suspended. The owner has no limit.
        """
        body = _canonical_json(spec)
        sender.require_for_submission(spec)
        self._check_faults(spec)
        scope, body_hash = f"{sender.name}:submit", hashlib.sha256(body.encode()).hexdigest()
        if key is not None and (answer := await self._find_answer(scope, key, body_hash)):
            return answer
        planned, resume_uri = await self._check(spec, sender)
        spec = planned.spec
        await self._check_code(spec)
        job_id = new_job_id(self._clock())
        new = NewJob(job_id, spec, self._storage_of(spec, job_id), resume_uri, planned.record)
        request = None if key is None else RequestKey(scope, key, body_hash)
        most = None if sender.identity.kind is IdentityKind.OWNER else self._most_queued or None
        try:
            job = await self._store.submit(new, now=self._clock(), author=sender.author, request=request, most=most)
        except QueueLimitError:
            self._refusals[Limit.QUEUED_JOBS] += 1
            raise
        except ConflictError:
            # Another server may have answered the same request between the read and the write.
            if key is not None and (answer := await self._find_answer(scope, key, body_hash)):
                return answer
            raise
        return Submission(job, replayed=False)

    async def validate(self, spec: JobSpec, sender: Sender) -> JobSpec:
        """Return the spec as `submit` would store it, without storing it.

        Checks everything but the job's name and the code archive, which a client uploads when it submits.

        Raises:
            SpecError, NotFoundError, ForbiddenError, UnavailableError: as `submit`.
        """
        _canonical_json(spec)
        sender.require_for_submission(spec)
        self._check_faults(spec)
        planned, _ = await self._check(spec, sender)
        self._storage_of(planned.spec, "job")
        return planned.spec

    async def _check(self, spec: JobSpec, sender: Sender) -> tuple[PlannedSpec, str | None]:
        """Return the spec with defaults, layout and dependencies, and the checkpoint that it resumes from."""
        await check_secrets(self._store, spec)
        check_isolation(spec, self._rank_users, self._storage_uri)
        planned = await self.resolve_layout(spec)
        resolved = await self._resolve_dependencies(planned.spec, sender)
        return replace(planned, spec=resolved), await self._resume_uri(resolved, sender)

    def _check_faults(self, spec: JobSpec) -> None:
        if (spec.faults or spec.disable_detectors) and not self._allow_faults:
            field = "faults" if spec.faults else "disable_detectors"
            raise ForbiddenError(
                f"this server does not accept `{field}`; start it with --allow-faults to test recovery"
            )

    async def resolve_layout(self, spec: JobSpec) -> PlannedSpec:
        """Return the spec with the project's defaults and with a layout.

        The record is None if the spec sets the layout itself.

        Raises:
            SpecError, ForbiddenError: as `submit`.
            UnavailableError: the spec needs a layout, and the cluster does not answer.
        """
        project = await self._store.queue.project(spec.project)
        spec = apply_project(spec, project, self._clusters)
        check_budgets(spec, project, self._prices)
        if spec.layout.auto is None:
            return PlannedSpec(spec)
        planned = await self._planner.plan(spec, max_ranks(project))
        return replace(planned, spec=apply_project(planned.spec, project, self._clusters))

    async def get(self, reference: str, project: str, sender: Sender) -> JobRow:
        """Return the job with this id or name.

        Raises:
            NotFoundError: there is no such job, or the sender does not see its project.
        """
        found = await self._store.find_job(reference, project)
        if not sender.sees(found.project):
            raise unknown_job(reference, project)
        return found

    async def detail(self, job: JobRow) -> JobDetail:
        """Return the job with its incidents and its newest generation."""
        if job.version == 1:  # the submission is the only event so far
            return JobDetail(job, [], None)
        newest, incidents = await self._store.newest_generation_and_incidents(job.id)
        comparisons = await compare_generations(self._store, job.id, [newest] if newest else [])
        return JobDetail(job, incidents, newest, comparisons[0] if comparisons else None)

    async def plan(self, job: JobRow) -> JobPlan:
        """Return the plan of a job, and its result."""
        return await get_job_plan(self._store, job)

    async def page(self, selection: JobFilter, after: str | None, limit: int) -> Page:
        """Return a page of jobs, newest first."""
        return await self._store.page(selection, after, limit)

    async def cancel(self, job: JobRow, *, author: Author) -> JobRow:
        """End a queued job at once, or request that any other job stops. Raises the errors of `Store.cancel`."""
        return await self._store.cancel(job.id, now=self._clock(), author=author)

    async def release(self, job: JobRow, *, author: Author) -> JobRow:
        """Release the nodes of a failed job that is held. Raises the errors of `Store.release`."""
        return await self._store.release(job.id, now=self._clock(), author=author)

    async def events(self, job: JobRow, after: int, limit: int) -> list[Event]:
        """Return the events with numbers above `after`."""
        return await self._store.events(job.id, after, limit)

    def follow_events(self, job: JobRow, after: int) -> AsyncGenerator[Entry[Event] | None]:
        """Yield events with numbers above `after` until the job has ended; None while there is no new event.

        Raises:
            FollowerDroppedError: the caller was too slow.
        """
        return self._followers.follow_events(job, after)

    async def steps(self, job: JobRow, after: int, limit: int) -> list[Step]:
        """Return the committed steps above step `after`, without those that a later generation repeated."""
        return await self._store.committed_steps(job.id, after, limit)

    def follow_steps(self, job: JobRow, after: int) -> AsyncGenerator[Entry[Step] | None]:
        """Yield step rows with numbers above `after` until the job has ended; None while there is no new row.

        A row replaces the rows of its step and of later steps in older generations.

        Raises:
            FollowerDroppedError: the caller was too slow.
        """
        return self._followers.follow_steps(job, after)

    async def incidents(self, job: JobRow) -> list[Incident]:
        """Return the incidents, oldest first."""
        return await self._store.incidents(job.id)

    async def generations(self, job: JobRow) -> list[Generation]:
        """Return the generations, oldest first."""
        return await self._store.generations(job.id)

    async def checkpoints(self, job: JobRow, removed: bool) -> list[Checkpoint]:
        """Return the checkpoints by step. `removed` includes those that are no longer in storage."""
        return await self._store.checkpoints(job.id, removed)

    async def pin(self, job: JobRow, step: int, pinned: bool, *, author: Author) -> Checkpoint:
        """Exclude a checkpoint from retention, or include it again; raises NotFoundError."""
        return await self._store.pin(job.id, step, pinned, now=self._clock(), author=author)

    async def ledger(self, job: JobRow) -> Ledger:
        """Return the ledger: the proof that every committed step saw each of its samples exactly once."""
        return await self._store.ledger(job.id)

    async def why(self, job: JobRow) -> Why:
        """Explain why the job waits, failed or is slow, with advice."""
        recent = await self._store.committed_steps(job.id, max(0, job.step - _RECENT_STEPS))
        now, ahead = self._clock(), await self._positions.jobs_ahead(job)
        account = await self._account(job)
        incidents, choice = await self._store.incidents(job.id), await self._choice(job)
        account.restore_incidents(incidents)
        return explain(job, incidents, recent, ahead, account.seconds(now), now, choice, account.steps_lost)

    async def _account(self, job: JobRow) -> JobAccount:
        """Return the job's account. The last ones are retained, so that a repetition reads only new events."""
        async with self._accounting:
            account = self._accounts[job.id] = self._accounts.pop(job.id, None) or JobAccount(job)
            if len(self._accounts) > _RETAINED_ACCOUNTS:
                del self._accounts[next(iter(self._accounts))]
            await account.catch_up(self._store, job)
            return account

    async def _choice(self, job: JobRow) -> PlacementExplanation | None:
        """Return the placement decision of the job's current nodes; None if it has no nodes."""
        rows = await self._store.live_allocations(job.id)
        with contextlib.suppress(KeyError, TypeError, ValueError, StopIteration):  # a damaged row
            choice = JobAllocations(rows).assignment.choice if rows else None
            if choice is None:
                return None
            predictions = await self._store.predictions.of_job(job.id)
            probe = predictions.get(job.generation, {}).get("probe_job_id")
            return explain_placement(choice, job.parsed_spec(), probe)
        return None

    async def _find_answer(self, scope: str, key: str, body_hash: str) -> Submission | None:
        answer = await self._store.idempotency.find(scope, key, now=self._clock())
        if answer is None:
            return None
        if answer[0] != body_hash:
            issue = FieldIssue("Idempotency-Key", "was used before with another spec; use a new key", key)
            raise KeyReusedError([issue])
        return Submission(await self._store.job(answer[1]["job_id"]), replayed=True)

    async def _resolve_dependencies(self, spec: JobSpec, sender: Sender) -> JobSpec:
        """Replace the names in `depends_on` by ids. A later job with the same name is then no dependency, so the
        dependencies never form a cycle."""
        found: list[str] = []
        for reference in spec.depends_on:
            try:
                other = await self.get(reference, spec.project, sender)
            except NotFoundError as error:
                message = "a job cannot depend on itself" if reference == spec.name else str(error)
                raise SpecError([FieldIssue("depends_on", message, reference)]) from error
            if other.state.is_terminal and other.state is not JobState.SUCCEEDED:
                ended = f"job {other.name!r} ({other.id}) ended {other.state} ({other.reason})"
                message = f"{ended}: this dependency can never succeed"
                raise SpecError([FieldIssue("depends_on", message, reference)])
            found.append(other.id)
        return spec.model_copy(update={"depends_on": found}) if found else spec

    async def _check_code(self, spec: JobSpec) -> None:
        if spec.code is not None and not await self._blobs.touch(spec.code.archive):
            message = (
                "archive not found on this server (unused archives are removed after some time); upload the code again "
                "with `regroup submit SPEC --working-dir DIR` or Client.upload_working_dir"
            )
            raise SpecError([FieldIssue("code.archive", message, spec.code.archive)])

    def _storage_of(self, spec: JobSpec, job_id: str) -> str:
        return f"{(spec.storage_uri or self._storage_uri).rstrip('/')}/jobs/{job_id}"

    async def _resume_uri(self, spec: JobSpec, sender: Sender) -> str | None:
        if spec.resume_from is None:
            return None
        reference, _, requested = spec.resume_from.partition("@")
        try:
            source = await self.get(reference, spec.project, sender)
        except NotFoundError as error:
            raise SpecError([FieldIssue("resume_from", str(error), spec.resume_from)]) from error
        stored = usable(await self._store.checkpoints(source.id), await self._store.generations(source.id))
        matches = [item for item in stored if requested == "latest" or item.step == int(requested)]
        if not matches:
            steps = ", ".join(str(item.step) for item in stored) or "none"
            message = f"job {source.id} has no such checkpoint; steps in storage: {steps}"
            raise SpecError([FieldIssue("resume_from", message, spec.resume_from)])
        return matches[-1].uri


def _canonical_json(spec: JobSpec) -> str:
    """Return the canonical JSON of the spec; raises SpecError if JSON or the database cannot represent a value."""
    try:
        text = json.dumps(spec.model_dump(mode="json"), sort_keys=True, allow_nan=False, ensure_ascii=False)
        text.encode()
    except ValueError as error:
        message = f"numbers must be finite and texts must be valid Unicode: {error}"
        raise SpecError([FieldIssue("", message)]) from error
    if "\\u0000" in text:
        raise SpecError([FieldIssue("", "text must not contain the NUL character")])
    return text
