"""Wire models of `/v1/queue`. Times: Unix seconds."""

from regroup.api.schemas.wire import Wire
from regroup.service.domain.queued_job import QueuedJob


class ProjectQueue(Wire):
    """The queued jobs of a project, as numbers."""

    project: str
    """Name of the project."""
    jobs: int
    """Number of queued jobs."""
    devices: int
    """Number of devices that they request."""


class Queue(Wire):
    """Queued jobs, in the order in which the scheduler considers them."""

    jobs: list[QueuedJob]
    """The first jobs that match."""
    total: int
    """Number of jobs that match."""
    projects: list[ProjectQueue]
    """Numbers of each project that you see and that has queued jobs, by name."""
