"""Wire models of `/v1/queue`. Times: Unix seconds."""

from regroup.api.schemas.wire import Wire


class QueuedJob(Wire):
    """A job that waits."""

    id: str
    """Id of the job."""
    name: str
    """Name of the job."""
    project: str
    """Project of the job."""
    priority: str
    """Priority class."""
    ranks: int | None
    """Number of devices that it requests; null if its spec cannot be read."""
    queued_at_s: float
    """Time since which it waits."""
    position: int | None
    """Number of jobs ahead of it, also of projects that you do not see; null if its spec cannot be read."""
    reason: str
    """Code of the reason why it waits; empty before its first evaluation."""
    message: str
    """Reason why it waits, for people."""
    estimated_start_s: float | None
    """Predicted start, as of the newest scheduling pass; null if it cannot be predicted."""


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
