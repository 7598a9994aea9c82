"""Wire model of the overview. Times are in Unix seconds."""

from typing import Literal

from regroup.api.schemas.server import ServerLinks
from regroup.api.schemas.wire import Wire
from regroup.service.domain.states import JobState


class DeviceClasses(Wire):
    """Number of devices of the cluster, by what they do. They sum to `total`."""

    kind: Literal["cuda", "cpu"]
    """`cuda`: GPUs are counted. `cpu`: the cluster has none, and cores are counted."""
    total: float
    """Number of all devices."""
    productive: float
    """Devices on which jobs train."""
    starting: float
    """Devices on which jobs start."""
    recovering: float
    """Devices on which jobs recover or change their size."""
    held: float
    """Devices that are reserved, but do not train: spares, jobs that stop, failed jobs that hold their nodes."""
    idle: float
    """Devices that no job has."""
    closed: float
    """Devices that no job has, on nodes that take no ranks."""


class AttentionItem(Wire):
    """Something that needs a person."""

    kind: str
    """Kind, for example `job_held` or `node_quarantined`. Clients must accept unknown ones."""
    message: str
    """Problem in one sentence, for people."""
    remedy: str
    """Advice in one sentence, for people."""
    job: str | None
    """Id of the job that it is about."""
    job_name: str | None
    """Name of the job."""
    project: str | None
    """Project of the job or of the hook."""
    node: str | None
    """Name of the node that it is about."""
    cluster: str | None
    """Name of the cluster that it is about."""
    hook: str | None
    """Id of the hook that it is about."""


class QueueReason(Wire):
    """Queued jobs that wait for the same reason."""

    reason: str
    """Reason, for programs, for example `resources`."""
    message: str
    """Reason of one of the jobs, for people; empty if the scheduler has not examined it yet."""
    jobs: int
    """Number of jobs."""
    job: str
    """Id of one of the jobs."""
    job_name: str
    """Name of that job."""


class RecentIncident(Wire):
    """An incident of the last day."""

    job: str
    """Id of the job."""
    job_name: str
    """Name of the job."""
    project: str
    """Project of the job."""
    number: int
    """Number of the incident among those of its job; the oldest is 1."""
    cause: str
    """Cause, for people."""
    reason: str | None
    """Cause, for programs."""
    recovery_action: str | None
    """Recovery action, for example `respawn`; `fail` if the job ended."""
    steps_lost: int | None
    """Number of committed steps that were repeated; null until the state is restored."""
    seen_s: float
    """Time of its detection."""
    total_s: float | None
    """Seconds from the fault to the next step; null until that step."""


class GoodputDay(Wire):
    """Goodput of 24 hours."""

    start_s: float
    """Start of the 24 hours."""
    end_s: float
    """End of the 24 hours."""
    goodput: float | None
    """Goodput of the jobs that had devices, weighted by their device-seconds in this time; null if none is known."""
    device_hours: float
    """Hours for which devices were held, multiplied by their number."""


class Overview(Wire):
    """The state of the server in one answer. It contains only what the sender may read."""

    time_s: float
    """Time of this overview."""
    summary: str
    """The state in one sentence, for people."""
    jobs: dict[JobState, int]
    """Number of jobs that have not ended, by state."""
    ended: dict[JobState, int]
    """Number of jobs that ended in the last 24 hours, by state."""
    devices: DeviceClasses | None
    """Devices of all clusters by what they do; null if the sender may not list nodes."""
    attention: list[AttentionItem]
    """Problems that need a person, the most urgent first; at most 50."""
    attention_total: int
    """Number of all that needs a person."""
    queue: list[QueueReason]
    """Why queued jobs wait, the most frequent reason first; at most 20."""
    incidents: list[RecentIncident]
    """Incidents of the last 24 hours, the newest first; at most 50."""
    incidents_total: int
    """Number of all incidents of the last 24 hours."""
    goodput: list[GoodputDay]
    """Goodput of the last seven times 24 hours, the oldest first. It is up to a minute old."""
    links: ServerLinks
    """Addresses of other systems."""
