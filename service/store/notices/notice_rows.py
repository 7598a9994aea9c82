"""Notices, and their writer. It works in the transaction of the change, so no notice is lost and none is invented."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.store.rows.records import JobRow
from regroup.service.store.schema.notice_tables import notices


class Topic(StrEnum):
    """Kinds of objects that change."""

    JOB = "job"
    NODE = "node"
    PROJECT = "project"
    STREAM = "stream"
    """The stream of notices itself."""


@dataclass(frozen=True)
class Notice:
    """One change. Its object has the details."""

    topic: Topic
    kind: str
    """Type of the job's event, kind of the node's event, or what was done to the object."""
    time_s: float
    number: int = 0
    """Position in the order of all notices. The database sets it."""
    project: str | None = None
    job_id: str | None = None
    event: int | None = None
    """Number of the event of the job."""
    state: str | None = None
    """State of the job after the change."""
    node: str | None = None
    """Name of the node."""

    @classmethod
    def of_job(cls, job: JobRow, kind: str, time_s: float) -> "Notice":
        """Return the notice of the newest event of a job."""
        return cls(Topic.JOB, kind, time_s, project=job.project, job_id=job.id, event=job.version, state=job.state)

    @classmethod
    def of_save(cls, job: JobRow, time_s: float) -> "Notice":
        """Return the notice that a checkpoint of a job is being written. It has no event."""
        return cls(Topic.JOB, "save", time_s, project=job.project, job_id=job.id, state=job.state)


async def record_notices(connection: AsyncConnection, changed: Sequence[Notice]) -> None:
    """Write notices in the transaction of their changes, after the changes.

    After them, the transaction has its id in PostgreSQL. `NoticeStore.after` relies on that.
    """
    if not changed:
        return
    rows = [asdict(notice) for notice in changed]
    for row in rows:
        del row["number"]
    await connection.execute(notices.insert(), rows)
