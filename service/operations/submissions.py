"""Submission of jobs: check a spec against the project and the server, choose its layout, and queue the job."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from pydantic_core import from_json, to_json

from regroup.service.blobs.store import BlobStore
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
from regroup.service.operations.jobs import JobDetail, Jobs
from regroup.service.operations.projects import apply_project, max_ranks
from regroup.service.operations.secrets import check_secrets
from regroup.service.spec.clusters import ONE_CLUSTER, ClusterNames
from regroup.service.spec.isolation import check_isolation
from regroup.service.spec.job import JobSpec
from regroup.service.spec.prices import PriceTable
from regroup.service.store.history import usable
from regroup.service.store.jobs.job_id import new_job_id
from regroup.service.store.rows.records import JobRow, NewJob, ProjectRow
from regroup.service.store.store import Store
from regroup.service.store.submissions import ProjectChangedError
from regroup.service.store.transactions.idempotency import RequestKey

_RETAINED_PROJECTS = 1000
_ATTEMPTS = 4
"""Number of checks of a spec whose project changes while it is checked."""


class KeyReusedError(SpecError):
    """A client used an idempotency key again with another body."""


@dataclass(frozen=True)
class Submission:
    """Result of a submit."""

    job: JobRow
    spec: JobSpec | None = None
    """The spec of a new job, with its defaults and its layout."""
    replayed: bool = False
    """True if the same request was answered before, so no job was created."""


class Submissions:
    """Use cases that check and queue specs.

    Args:
        clock: Unix seconds.
        blobs: store of the jobs' code.
        planner: chooses layouts.
        jobs: finds the jobs that a spec names.
        storage_uri: durable storage of jobs whose spec has no `storage_uri`.
        allow_faults: accept specs with `faults`.
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
        jobs: Jobs,
        *,
        storage_uri: str,
        allow_faults: bool,
        prices: PriceTable | None = None,
        most_queued: int = 0,
        refusals: Counter[Limit] | None = None,
        rank_users: str = "",
        clusters: ClusterNames = ONE_CLUSTER,
    ) -> None:
        self._store, self._clock, self._blobs, self._planner, self._jobs = store, clock, blobs, planner, jobs
        self._storage_uri, self._allow_faults = storage_uri, allow_faults
        self._prices, self._most_queued = prices, most_queued
        self._refusals = Counter[Limit]() if refusals is None else refusals
        self._rank_users, self._clusters = rank_users, clusters
        self._projects: dict[str, ProjectRow] = {}
        """Settings of projects at their last submission. The transaction of a submission compares them again."""

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
            ConflictError: a live job of the project has the same name, or the project changes all the time.
            QueueLimitError: too many jobs of the sender are queued or suspended. The owner has no limit.
        """
        _check_values(spec)
        sender.require_for_submission(spec)
        self._check_faults(spec)
        scope, body_hash = f"{sender.name}:submit", "" if key is None else _digest_of(spec)
        if key is not None and (answer := await self._find_answer(scope, key, body_hash)):
            return answer
        try:
            return await self._queue(spec, sender, None if key is None else RequestKey(scope, key, body_hash))
        except QueueLimitError:
            self._refusals[Limit.QUEUED_JOBS] += 1
            raise
        except ConflictError:
            # Another server may have answered the same request between the read and the write.
            if key is not None and (answer := await self._find_answer(scope, key, body_hash)):
                return answer
            raise

    async def detail(self, submission: Submission) -> JobDetail:
        """Return the submitted job with the records that belong to it. A new job has none yet."""
        return await self._jobs.detail(submission.job)

    async def validate(self, spec: JobSpec, sender: Sender) -> JobSpec:
        """Return the spec as `submit` would store it, without storing it.

        Checks everything but the job's name and the code archive, which a client uploads when it submits.

        Raises:
            SpecError, NotFoundError, ForbiddenError, UnavailableError: as `submit`.
        """
        _check_values(spec)
        sender.require_for_submission(spec)
        self._check_faults(spec)
        planned, _ = await self._check(spec, sender, await self._store.queue.project(spec.project))
        self._storage_of(planned.spec, "job")
        return planned.spec

    async def _queue(self, spec: JobSpec, sender: Sender, request: RequestKey | None) -> Submission:
        """Check the spec against the settings of its project, and queue the job if they still apply then."""
        most = None if sender.identity.kind is IdentityKind.OWNER else self._most_queued or None
        project = self._projects.get(spec.project) or await self._store.queue.project(spec.project)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                planned, resume_uri = await self._check(spec, sender, project)
                await self._check_code(planned.spec)
            except (SpecError, ForbiddenError):
                # Settings of an earlier submission may be the reason.
                current = await self._store.queue.project(spec.project)
                if current == project or attempt == _ATTEMPTS:
                    raise
                project = self._remember(current)
                continue
            job_id = new_job_id(self._clock())
            storage_uri = self._storage_of(planned.spec, job_id)
            new = NewJob(job_id, planned.spec, storage_uri, resume_uri, planned.record)
            submit = self._store.submissions.submit
            try:
                job = await submit(
                    new, now=self._clock(), author=sender.author, request=request, most=most, project=project
                )
            except ProjectChangedError as error:
                if attempt == _ATTEMPTS:
                    raise
                project = self._remember(error.project)
                continue
            self._remember(project)
            return Submission(job, planned.spec)
        raise AssertionError("the last attempt returns or raises")

    def _remember(self, project: ProjectRow) -> ProjectRow:
        self._projects.pop(project.name, None)
        self._projects[project.name] = project
        if len(self._projects) > _RETAINED_PROJECTS:
            del self._projects[next(iter(self._projects))]
        return project

    async def _check(self, spec: JobSpec, sender: Sender, project: ProjectRow) -> tuple[PlannedSpec, str | None]:
        """Return the spec with defaults, layout and dependencies, and the checkpoint that it resumes from."""
        await check_secrets(self._store, spec)
        check_isolation(spec, self._rank_users, self._storage_uri)
        planned = await self._resolve_layout(spec, project)
        resolved = await self._resolve_dependencies(planned.spec, sender)
        return replace(planned, spec=resolved), await self._resume_uri(resolved, sender)

    def _check_faults(self, spec: JobSpec) -> None:
        if (spec.faults or spec.disable_detectors) and not self._allow_faults:
            field = "faults" if spec.faults else "disable_detectors"
            raise ForbiddenError(
                f"this server does not accept `{field}`; start it with --allow-faults to test recovery"
            )

    async def _resolve_layout(self, spec: JobSpec, project: ProjectRow) -> PlannedSpec:
        """Return the spec with the project's defaults and with a layout.

        The record is None if the spec sets the layout itself.

        Raises:
            SpecError, ForbiddenError: as `submit`.
            UnavailableError: the spec needs a layout, and the cluster does not answer.
        """
        spec = apply_project(spec, project, self._clusters)
        check_budgets(spec, project, self._prices)
        if spec.layout.auto is None:
            return PlannedSpec(spec)
        planned = await self._planner.plan(spec, max_ranks(project))
        return replace(planned, spec=apply_project(planned.spec, project, self._clusters))

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
                other = await self._jobs.get(reference, spec.project, sender)
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
            source = await self._jobs.get(reference, spec.project, sender)
        except NotFoundError as error:
            raise SpecError([FieldIssue("resume_from", str(error), spec.resume_from)]) from error
        stored = usable(await self._store.checkpoints(source.id), await self._store.generations(source.id))
        matches = [item for item in stored if requested == "latest" or item.step == int(requested)]
        if not matches:
            steps = ", ".join(str(item.step) for item in stored) or "none"
            message = f"job {source.id} has no such checkpoint; steps in storage: {steps}"
            raise SpecError([FieldIssue("resume_from", message, spec.resume_from)])
        return matches[-1].uri


def _check_values(spec: JobSpec) -> None:
    """Raise SpecError if JSON or the database cannot represent a value of the spec."""
    try:
        text = to_json(spec, inf_nan_mode="constants")
        if b"NaN" in text or b"Infinity" in text:
            from_json(text, allow_inf_nan=False)
    except ValueError as error:
        message = f"numbers must be finite and texts must be valid Unicode: {error}"
        raise SpecError([FieldIssue("", message)]) from error
    if b"\\u0000" in text:
        raise SpecError([FieldIssue("", "text must not contain the NUL character")])


def _digest_of(spec: JobSpec) -> str:
    """Return the digest of a spec, which is the same for any order of its keys."""
    text = json.dumps(spec.model_dump(mode="json"), sort_keys=True, allow_nan=False, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
