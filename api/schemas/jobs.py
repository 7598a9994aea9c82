"""Wire models of jobs, v1. Times are in Unix seconds.

New fields may be added at any time, but a field never changes its meaning. Clients must accept unknown enum values.
"""

from typing import Any

from regroup.api.schemas.job_plan import Prediction
from regroup.api.schemas.topology import Choice
from regroup.api.schemas.wire import Wire
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import JobState
from regroup.service.spec.job import JobSpec


class Condition(Wire):
    """A condition of a job: `reason` for programs, `message` for people."""

    type: str
    """Type of the condition, for example `Placeable`."""
    status: bool
    """True if the condition applies."""
    reason: str
    """Cause, for programs."""
    message: str
    """Cause and remedy, for people."""
    last_transition_time: float
    """Time of the last change of `status`."""


class Phase(Wire):
    """Phase of the start, and its progress."""

    phase: str
    """Name of the phase, for example `installing` or `restoring`."""
    fraction: float | None = None
    """Completed part, from 0 to 1; null if it is unknown."""
    message: str | None = None
    """Present work, for people."""
    done_bytes: int | None = None
    """Bytes that were moved; null in a phase that does not count bytes."""
    total_bytes: int | None = None
    """Bytes to move in all."""
    bytes_per_s: float | None = None
    """Present rate in bytes per second."""
    time_s: float | None = None
    """Time of this report."""


class SaveProgress(Wire):
    """A checkpoint that the nodes of a job are writing while it trains."""

    step: int
    """Number of committed steps in the checkpoint."""
    generation: int
    """Generation that saves it."""
    message: str
    """Progress, for people."""
    done_bytes: int
    """Bytes that are written. Unchanged parts of older checkpoints are not written again."""
    total_bytes: int
    """Bytes to write in all, of the nodes that have begun."""
    bytes_per_s: float
    """Rate of the last five seconds, in bytes per second."""


class Incident(Wire):
    """An incident: its cause, evidence, recovery action, times and losses."""

    id: str
    """Id of the incident."""
    number: int = 0
    """Number of the incident; the oldest is 1. Its evidence is at `GET …/incidents/{number}/evidence`."""
    cause: str
    """Cause, for people."""
    reason: str | None = None
    """Cause, for programs, for example `rank_exit`."""
    rank: int | None = None
    """Rank at fault; null if it is unknown, or if no rank is."""
    node_id: str | None = None
    """Ray's id of the node at fault; null if it is unknown, or if no node is."""
    evidence: Any = None
    """Findings by kind of cause: for a hang, the position of each rank."""
    generation: int | None = None
    """Generation that ended."""
    next_generation: int | None = None
    """Generation that continued; null until it is formed."""
    recovery_action: str | None = None
    """Recovery action, for example `respawn` or `disk`; `fail` if the job ended."""
    at_step: int | None = None
    """Number of committed steps when the generation ended."""
    steps_lost: int | None = None
    """Number of committed steps that were repeated; null until the state is restored."""
    times: dict[str, float | None] = {}
    """Unix times of the fault, its detection and the recovery: fault_s, seen_s, dead_s, decided_s, formed_s,
    restored_s, first_step_s; ended_s if the job ended before another step."""
    durations: dict[str, float | None] = {}
    """Durations in seconds: detect, teardown, decide, form, restore, first_step, total."""
    evidence_bytes: int | None = None
    """Size of the nodes' evidence. None: not collected yet. 0: there is none, or newer evidence replaced it."""
    evidence_missing: dict[str, str] = {}
    """Nodes without evidence, and the reasons."""


class RankPlacement(Wire):
    """Placement of one rank of the newest generation."""

    rank: int
    """Number of the rank."""
    node_id: str = ""
    """Id of its node in Ray."""
    node_name: str = ""
    """Permanent name of its node."""
    address: str = ""
    """Address of its node."""
    local_rank: int = 0
    """Number of the rank among the job's ranks on its node."""
    device: int | str = ""
    """Index of the rank's device on the node."""


class Digest(Wire):
    """Hex digests of the result. Runs with equal digests are bitwise equal."""

    parameters: str | None = None
    """Digest of the trained parameters; null if the job has not succeeded, or has none."""
    samples: str | None = None
    """Digest of the samples of all committed steps; null if the training code reads its data itself."""


class JobSummary(Wire):
    """A job in a list."""

    id: str
    """Id of the job."""
    name: str
    """Name. Two jobs of a project that have not ended never have the same one."""
    project: str
    """Project of the job."""
    labels: dict[str, str]
    """Labels of the spec."""
    owner: str
    """Person or group that the spec names as responsible; a free text."""
    author: str = ""
    """Identity that submitted the job; empty if the server does not know it."""
    state: JobState
    """State of the job."""
    reason: str
    """Reason for the state, for programs."""
    message: str
    """Reason for the state, for people."""
    version: int
    """Number of the newest event."""
    etag: str = ""
    """Entity tag, `"version.revision"`. `If-Match` compares the version, because progress is not a conflict."""
    step: int
    """Number of committed steps."""
    step_is_estimated: bool = False
    """True if a script repeated an unknown number of steps after a restart: `step` counts these twice."""
    steps: int | None
    """Number of steps in total; null for a script that does not report it."""
    generation: int
    """Number of the newest generation; 0 before the first one."""
    layout: Layout | None
    """Layout of the newest generation; null before the first one."""
    loss: float | None
    """Loss of the newest step that reported one."""
    validation_loss: float | None
    """Newest loss on the held-out data."""
    tokens_per_s: float | None
    """Tokens per second of all ranks, as a moving average over steps."""
    mfu: float | None = None
    """Model FLOPs of the newest step, divided by the peak FLOPs of its devices in that time; null if unknown."""
    exposed_communication: float | None = None
    """Mean fraction of the newest forward and backward in which ranks waited for each other; CPUs only."""
    peak_bytes: float | None = None
    """Peak memory of a rank in the newest step."""
    pipeline_idle: float | None = None
    """Fraction of the newest forward and backward in which a pipeline rank was idle; null without a pipeline."""
    mirrored_step: int | None = None
    """Number of committed steps in the state that is mirrored on other nodes; null before the first mirror."""
    eta_s: float | None
    """Time to the last step at the current rate, in seconds."""
    goodput: float | None
    """Fraction of the time since the start that produced committed steps."""
    created_at: float
    """Time of the submission."""
    started_at: float | None
    """Time of the first allocation of devices."""
    finished_at: float | None
    """Time of the end; null until then."""


class JobLink(Wire):
    """A page of another system about a job."""

    name: str
    """Name of the system."""
    url: str
    """Address of the page."""


class Job(JobSummary):
    """A job with all its fields."""

    error: dict[str, Any] | None
    """Exception that ended the job: `kind`, `message` and `traceback`; null if there was none."""
    digest: Digest
    """Digests of the result."""
    parameter_count: int | None
    """Number of trained parameters; null until the job succeeds."""
    result: dict[str, Any] = {}
    """`run.result` of the training code, without digests and counts; empty until the job succeeds."""
    conditions: list[Condition]
    """Reasons why the job waits, and other facts that need attention."""
    phase: Phase | None
    """Phase of a start or recovery; null while the job trains."""
    save: SaveProgress | None = None
    """Checkpoint that is being written; null if there is none, and in the first two seconds."""
    intents: dict[str, Any]
    """Pending requests, e.g. `cancel`."""
    incidents: list[Incident]
    """Incidents, oldest first."""
    placement: list[RankPlacement]
    """Places of the ranks of the newest generation."""
    prediction: Prediction | None = None
    """Prediction for the newest generation and the measured values; null if the planner cannot model the job."""
    rank_phases: dict[str, tuple[int, str]]
    """Rank → newest known step and phase; empty if no rank runs."""
    storage_uri: str
    """Folder of the job in durable storage."""
    resume_uri: str | None
    """Checkpoint of another job from which this one starts; null if there is none."""
    links: list[JobLink] = []
    """Pages of the job's runs in experiment trackers, from the variables in its spec."""
    spec: JobSpec | None
    """Spec as submitted, with the chosen layout if it was `auto`. Secrets are references. Null if the stored spec is
    damaged or no longer valid; the condition `PlatformFault` then gives the reason."""

    @property
    def workload_kind(self) -> str:
        """Kind of the workload, e.g. `script`; empty if the stored spec is damaged."""
        return "" if self.spec is None else self.spec.workload.kind

    @property
    def device_kind(self) -> str:
        """Kind of the devices, `cpu` or `cuda`; empty if the stored spec is damaged."""
        return "" if self.spec is None else self.spec.resources.device


class JobList(Wire):
    """A page of jobs, newest first."""

    jobs: list[JobSummary]
    """The jobs of this page."""
    next_page_token: str
    """Token of the next page; empty on the last page."""


class Why(Wire):
    """Explanation of a job that waits, failed or is slow, with advice."""

    id: str
    """Id of the job."""
    state: JobState
    """State of the job."""
    reason: str
    """Reason for the state, for programs."""
    summary: str
    """Explanation in one or two sentences."""
    advice: list[str]
    """Possible actions, the most useful first."""
    conditions: list[Condition]
    """Conditions of the job."""
    phase: Phase | None
    """Phase of a start or recovery; null while the job trains."""
    save: SaveProgress | None = None
    """Checkpoint that is being written; null if there is none, and in the first two seconds."""
    error: dict[str, Any] | None
    """Exception that ended the job; null if there was none."""
    incidents: list[Incident]
    """Incidents, oldest first."""
    queue_position: int | None
    """Number of jobs before this one; null if it is not queued."""
    estimated_start: str | None
    """ISO 8601, to the minute; null if the job is not queued or the start cannot be estimated."""
    recovery_s: float
    """Seconds that all recoveries took together."""
    mean_recovery_s: float | None
    """Mean time from a failure to the next step (MTTR); null before the first recovery."""
    steps_lost: dict[str, int]
    """Number of repeated steps, by the reason of the incidents that caused them."""
    stall_ratio: float | None
    """Part of the newest steps' time in which training waited for snapshots; null before the first step."""
    seconds: dict[str, float] = {}
    """Time spent, by class. The sum is the age of the job."""
    goodput: float | None
    """Goodput; null while the job is too young for a meaningful value."""
    choice: Choice | None = None
    """Reasons for the placement; null if the job has no nodes."""
    host_memory: str | None = None
    """Host memory of the newest generation, for people; null if it cannot be predicted."""


class ValidatedSpec(Wire):
    """A valid spec with all defaults, and the layouts that it can run with."""

    spec: JobSpec
    """The spec with all defaults."""
    ladder: list[Layout]
    """Layouts that the job can run with, the smallest first."""
