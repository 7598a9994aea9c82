"""Wire models of the reliability report. Times: Unix seconds."""

from regroup.api.schemas.wire import Wire


class Spread(Wire):
    """Durations of something that happened several times."""

    count: int
    """Number of times."""
    mean_s: float
    """Mean duration."""
    median_s: float
    """Median duration."""
    p95_s: float
    """95th percentile of the durations."""
    max_s: float
    """Longest duration."""


class PhaseReport(Spread):
    """Duration of one phase of the recoveries."""

    phase: str
    """Phase: `detect` (fault → seen), `teardown` (→ ranks dead), `decide`, `form` (→ formed), `restore` (→ state
    restored), `first_step`."""


class CauseReport(Wire):
    """Incidents with one reason."""

    reason: str
    """Reason, for example `rank_exit`."""
    is_planned: bool
    """True for resizes, drains and other planned changes, which are not failures."""
    incidents: int
    """Number of incidents."""
    recovery: Spread | None
    """Time from the fault to the next step; null if no job continued."""
    phases: dict[str, float]
    """Mean seconds of each phase."""
    steps_lost: int
    """Number of steps that were repeated."""
    lost_device_hours: float
    """Device-hours until the next step, and in repeated steps."""


class ReliabilityBin(Wire):
    """Incidents in one part of the window."""

    start_s: float
    """Start of the part."""
    incidents: dict[str, int]
    """Number of incidents by reason."""


class NodeFaults(Wire):
    """Faults of one node. They are kept for seven days."""

    node: str
    """Permanent name of the node."""
    faults: dict[str, int]
    """Number of faults by kind, for example `agent_lost`."""
    last_s: float
    """Time of the newest fault."""


class Interruption(Wire):
    """An incident of a job."""

    job: str
    """Id of the job."""
    job_name: str
    """Name of the job."""
    project: str
    """Project of the job."""
    number: int
    """Number of the incident in its job."""
    cause: str
    """Cause, for people."""
    reason: str
    """Cause, for programs."""
    is_planned: bool
    """True for a planned change, which is not a failure."""
    time_s: float
    """Time at which it was recorded."""
    total_s: float | None
    """Time from the fault to the next step; null if there was none yet."""
    steps_lost: int
    """Number of steps that were repeated."""
    lost_device_hours: float
    """Device-hours until the next step, and in repeated steps."""


class Reliability(Wire):
    """Incidents, recoveries, faults of nodes and goodput in a window of time."""

    from_s: float
    """Start of the window."""
    to_s: float
    """End of the window, which is not part of it."""
    incidents: int
    """Number of incidents, with planned changes."""
    failures: int
    """Number of incidents that were not planned."""
    is_partial: bool
    """True if the window has more than 10,000 incidents or jobs: the oldest incidents are missing."""
    recovery: Spread | None
    """Time from a failure to the next step; null if there was none."""
    phases: list[PhaseReport]
    """Phases of the recoveries from failures, in their order."""
    causes: list[CauseReport]
    """Reasons, those with the most lost device-hours first."""
    bin_s: float
    """Length of one part of the window."""
    bins: list[ReliabilityBin]
    """Parts of the window in their order, at most 60."""
    nodes: list[NodeFaults]
    """Nodes with the most faults, at most 50."""
    newest: list[Interruption]
    """Newest incidents, at most 50."""
    steps_lost: int
    """Number of steps that were repeated."""
    lost_device_hours: float
    """Device-hours without progress because of incidents."""
    device_hours: float
    """Device-hours that jobs held in the window."""
    goodput: float | None
    """Share of time with devices in steps that count: mean of the jobs by device-hours; null if it is not known."""
