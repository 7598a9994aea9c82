"""Wire models of notices: what has changed in all jobs, nodes and projects. Times are in Unix seconds."""

from typing import Annotated

from pydantic import Field

from regroup.api.schemas.wire import Wire
from regroup.service.domain.notices import Topic
from regroup.service.domain.states import JobState


class Notice(Wire):
    """One change. Its object has the details."""

    number: int
    """Position in the order of all notices, at which a stream can be resumed. The numbers have gaps."""
    topic: Topic
    """Kind of the object. The topic `stream` is for notices about the stream itself."""
    kind: str
    """Type of the job's event, for example `state` or `incident`; kind of the node's event, for example `cordoned`,
    `drain` or `undrain`; `put` or `delete` for a project. Of a stream: `start` has the number at which it begins, and
    `missed` tells that notices were removed before the client got them, so that it must read all objects again."""
    time_s: float
    """Time of the change."""
    project: str | None = None
    """Project that has changed, or project of the job."""
    job: str | None = None
    """Id of the job."""
    event: Annotated[int, Field(ge=1)] | None = None
    """Number of the event of the job."""
    state: JobState | None = None
    """State of the job after the change."""
    node: str | None = None
    """Name of the node."""


class NoticeList(Wire):
    """A part of the list of notices."""

    notices: list[Notice]
    """The notices that the sender may see, in order."""
    next_after: int
    """Value of `after` for the next part."""
    is_complete: bool
    """False if notices after `after` were removed: they are kept for an hour. Read the objects again then."""
