"""Submissions of jobs: several in one transaction, and each is accepted or refused for itself."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.author import Author
from regroup.service.domain.errors import ConflictError, RegroupError, UnavailableError
from regroup.service.store.access.audit import Change, audited_fields, record_changes
from regroup.service.store.jobs.jobs import insert_jobs
from regroup.service.store.jobs.queue_limit import QueueLimits, queue_limit_error
from regroup.service.store.rows.records import JobRow, NewJob, ProjectRow
from regroup.service.store.schema.tables import projects
from regroup.service.store.transactions.change_notifier import Changes
from regroup.service.store.transactions.database import Database
from regroup.service.store.transactions.groups import Groups
from regroup.service.store.transactions.idempotency import IdempotencyStore, RequestKey
from regroup.service.store.transactions.write_conditions import current_conditions

_MOST = 64
"""Largest number of submissions in one transaction."""
_PROJECTS = sa.select(projects).where(projects.c.name.in_(sa.bindparam("names", expanding=True)))


class ProjectChangedError(ConflictError):
    """The project has other settings than those that the job was checked against."""

    def __init__(self, project: ProjectRow) -> None:
        super().__init__(
            f"the settings of project {project.name!r} changed during the submission; submit the job again"
        )
        self.project = project
        """The settings that apply now."""


@dataclass(frozen=True)
class JobSubmission:
    """A checked job that the store must queue."""

    new: NewJob
    now: float
    """Unix seconds."""
    author: Author
    key: RequestKey | None = None
    """Key of the request. The job's id is stored under it."""
    most: int | None = None
    """Largest number of jobs of the author that may be queued or suspended; None for no limit."""
    project: ProjectRow | None = None
    """Settings of the project that the job was checked against; None if it was not checked."""


class SubmissionStore:
    """The part of `Store` for submissions of jobs: `store.submissions`."""

    def __init__(self, database: Database, changes: Changes, idempotency: IdempotencyStore) -> None:
        self._database, self._changes, self._idempotency = database, changes, idempotency
        self._groups = Groups(self._write_group, _MOST)
        self._limits = QueueLimits()

    async def submit(
        self,
        new: NewJob,
        *,
        now: float,
        author: Author,
        request: RequestKey | None = None,
        most: int | None = None,
        project: ProjectRow | None = None,
    ) -> JobRow:
        """Queue a job. Submissions that arrive at the same time share a transaction.

        Args:
            request: key of the request. The job's id is stored under it, in the same transaction.
            most: largest number of jobs of the author that may be queued or suspended; None for no limit.
            project: settings of the project that the job was checked against; None if it was not checked.

        Raises:
            ProjectChangedError: the project has other settings.
            RepeatedRequestError: an earlier request has the same key.
            QueueLimitError: so many jobs of the author wait.
            ConflictError: a live job has the name, or a request with the same key is in progress.
        """
        submission = JobSubmission(new, now, author, request, most, project)
        conditions = current_conditions()
        if conditions is None or not conditions.has_effect:
            job = await self._groups.add(submission)
        else:
            job = await self._write(submission)
        self._changes.announce(job.id)
        return job

    async def finish(self) -> None:
        """Wait until all submissions are stored."""
        await self._groups.finish()

    async def _write_group(self, group: Sequence[JobSubmission]) -> Sequence[JobRow | Exception]:
        try:
            async with self._database.write() as connection:
                return await write_submissions(connection, group, self._idempotency, self._limits)
        except UnavailableError:
            raise
        except Exception as error:  # a fault of one submission is not one of the others
            if len(group) == 1:
                return [error]
            return [await self._try_to_write(each) for each in group]

    async def _try_to_write(self, submission: JobSubmission) -> JobRow | Exception:
        try:
            return await self._write(submission)
        except Exception as error:
            return error

    async def _write(self, submission: JobSubmission) -> JobRow:
        async with self._database.write() as connection:
            (found,) = await write_submissions(connection, [submission], self._idempotency, self._limits)
            if isinstance(found, RegroupError):
                raise found
            return found


async def write_submissions(
    connection: AsyncConnection,
    submissions: Sequence[JobSubmission],
    idempotency: IdempotencyStore,
    limits: QueueLimits,
) -> list[JobRow | RegroupError]:
    """Queue jobs in a transaction; return the row of each, or why it is refused. Refused jobs leave nothing behind.

    All servers lock rows in the same order: authors, then keys, then names. So no two of them wait for each other.

    Returns:
        For each job its row, or one of these errors. ProjectChangedError: see there. QueueLimitError: too many jobs of
        the author wait. RepeatedRequestError: an earlier request has the same key. ConflictError: a live job has the
        name, or a request with the same key is in progress.
    """
    group = _Group(submissions)
    await _check_projects(connection, group)
    await _check_queue_limits(connection, group, limits)
    await _reserve_keys(connection, group, idempotency)
    await _insert(connection, group, idempotency)
    return [group.results[number] for number in range(len(submissions))]


class _Group:
    def __init__(self, submissions: Sequence[JobSubmission]) -> None:
        self._submissions = submissions
        self.results: dict[int, JobRow | RegroupError] = {}

    @property
    def undecided(self) -> list[tuple[int, JobSubmission]]:
        """The numbers and submissions without a result, in the order of their arrival."""
        return [each for each in enumerate(self._submissions) if each[0] not in self.results]


async def _check_projects(connection: AsyncConnection, group: _Group) -> None:
    names = sorted({each.project.name for _, each in group.undecided if each.project is not None})
    if not names:
        return
    rows = (await connection.execute(_PROJECTS, {"names": names})).mappings()
    found = {row["name"]: ProjectRow(**row) for row in rows}
    for number, each in group.undecided:
        if each.project is not None:
            current = found.get(each.project.name) or ProjectRow(each.project.name)
            if current != each.project:
                group.results[number] = ProjectChangedError(current)


async def _check_queue_limits(connection: AsyncConnection, group: _Group, limits: QueueLimits) -> None:
    limited: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for number, each in group.undecided:
        if each.most is not None:
            limited[each.author.name, each.most].append(number)
    for (author, most), numbers in sorted(limited.items()):
        admitted = await limits.admit(connection, author, most, len(numbers))
        group.results |= {number: queue_limit_error(author, most) for number in numbers[admitted:]}


async def _reserve_keys(connection: AsyncConnection, group: _Group, idempotency: IdempotencyStore) -> None:
    keyed = [(number, each, each.key) for number, each in group.undecided if each.key is not None]
    if not keyed:
        return
    answers = [(key, {"job_id": each.new.id}) for _, each, key in keyed]
    refusals = await idempotency.reserve_all(connection, answers, now=max(each.now for _, each, _ in keyed))
    group.results |= {
        number: refusal for (number, _, _), refusal in zip(keyed, refusals, strict=True) if refusal is not None
    }


async def _insert(connection: AsyncConnection, group: _Group, idempotency: IdempotencyStore) -> None:
    undecided = group.undecided
    if not undecided:
        return
    rows = await insert_jobs(connection, [(each.new, each.now, each.author.name) for _, each in undecided])
    for (number, each), row in zip(undecided, rows, strict=True):
        group.results[number] = row or _name_conflict(each.new)
    refused = [each.key for (_, each), row in zip(undecided, rows, strict=True) if row is None and each.key is not None]
    if refused:
        await idempotency.remove(connection, refused)
    changes = [
        (each.author, Change("jobs.submit", row.id, row.project, after=audited_fields(row)), each.now)
        for (_, each), row in zip(undecided, rows, strict=True)
        if row is not None
    ]
    await record_changes(connection, changes)


def _name_conflict(new: NewJob) -> ConflictError:
    project, name = new.spec.project, new.spec.name
    return ConflictError(
        f"project {project!r} has a live job named {name!r}; cancel it, wait for it, or use another name"
    )
