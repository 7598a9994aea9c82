"""Wire models v1. Times are in Unix seconds.

New fields may be added at any time, but a field never changes its meaning. Clients must accept unknown enum values.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from regroup.api.schemas.job_plan import Prediction
from regroup.api.schemas.topology import Choice
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import JobState
from regroup.service.spec.job import JobSpec
from regroup.service.spec.types import Integer


class _Wire(BaseModel):
    model_config = ConfigDict(from_attributes=True, frozen=True)


class Condition(_Wire):
    """A condition of a job: `reason` for programs, `message` for people."""

    type: str
    status: bool
    reason: str
    message: str
    last_transition_time: float


class Phase(_Wire):
    """Phase of the start, and its progress."""

    phase: str
    fraction: float | None = None
    message: str | None = None
    time_s: float | None = None


class Incident(_Wire):
    """An incident: its cause, evidence, recovery action, times and losses."""

    id: str
    number: int = 0
    """Number of the incident; the oldest is 1. Its evidence is at `GET …/incidents/{number}/evidence`."""
    cause: str
    reason: str | None = None
    rank: int | None = None
    node_id: str | None = None
    evidence: Any = None
    generation: int | None = None
    next_generation: int | None = None
    recovery_action: str | None = None
    at_step: int | None = None
    steps_lost: int | None = None
    times: dict[str, float | None] = {}
    """Unix times of the fault, its detection and the recovery: fault_s, seen_s, dead_s, decided_s, formed_s,
    restored_s, first_step_s; ended_s if the job ended before another step."""
    durations: dict[str, float | None] = {}
    """Durations in seconds: detect, teardown, decide, form, restore, first_step, total."""
    evidence_bytes: int | None = None
    """Size of the nodes' evidence. None: not collected yet. 0: there is none, or newer evidence replaced it."""
    evidence_missing: dict[str, str] = {}
    """Nodes without evidence, and the reasons."""


class RankPlacement(_Wire):
    """Placement of one rank of the newest generation."""

    rank: int
    node_id: str = ""
    node_name: str = ""
    address: str = ""
    local_rank: int = 0
    device: int | str = ""
    """Index of the rank's device on the node."""


class Digest(_Wire):
    """Hex digests of the result. Runs with equal digests are bitwise equal."""

    parameters: str | None = None
    samples: str | None = None


class JobSummary(_Wire):
    """A job in a list."""

    id: str
    name: str
    project: str
    labels: dict[str, str]
    owner: str
    state: JobState
    reason: str
    message: str
    version: int
    """Number of the newest event; `If-Match` compares it."""
    step: int
    """Number of committed steps."""
    step_is_estimated: bool = False
    """True if a script repeated an unknown number of steps after a restart: `step` counts these twice."""
    steps: int | None
    """Number of steps in total; null for a script that does not report it."""
    generation: int
    layout: Layout | None
    loss: float | None
    validation_loss: float | None
    tokens_per_s: float | None
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
    started_at: float | None
    """Time of the first allocation of devices."""
    finished_at: float | None


class Job(JobSummary):
    """A job with all its fields."""

    error: dict[str, Any] | None
    digest: Digest
    parameter_count: int | None
    result: dict[str, Any] = {}
    """`run.result` of the training code, without digests and counts; empty until the job succeeds."""
    conditions: list[Condition]
    phase: Phase | None
    intents: dict[str, Any]
    """Pending requests, e.g. `cancel`."""
    incidents: list[Incident]
    placement: list[RankPlacement]
    prediction: Prediction | None = None
    """Prediction for the newest generation and the measured values; null if the planner cannot model the job."""
    rank_phases: dict[str, tuple[int, str]]
    """Rank → newest known step and phase; empty if no rank runs."""
    storage_uri: str
    resume_uri: str | None
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


class JobList(_Wire):
    """A page of jobs, newest first."""

    jobs: list[JobSummary]
    next_page_token: str
    """Token of the next page; empty on the last page."""


class Event(_Wire):
    """One entry of a job's history. The numbers have no gaps."""

    job_id: str
    number: int
    type: str
    time_s: float
    generation: int
    actor: str
    data: dict[str, Any]


class EventList(_Wire):
    """Events in order."""

    events: list[Event]


class Step(_Wire):
    """One committed step. Values that were not finite or not reported are null."""

    number: int
    """Position among all rows of the job, at which a stream can be resumed."""
    generation: int
    step: int
    time_s: float
    duration_s: float | None
    loss: float | None
    tokens: int | None
    """Number of tokens; null for scripts, which do not report it. The same applies to samples and their hash."""
    samples: int | None
    samples_hash: Annotated[str, Field(pattern="^[0-9a-f]{16}$")] | None
    """Sum modulo 2**64 of hash(epoch, index) over its samples, in hex."""
    learning_rate: float | None
    grad_norm: float | None
    validation_loss: float | None
    stall_s: float | None
    extra: dict[str, float | None]


class StepList(_Wire):
    """Committed steps in order, without rows that a later generation replaced."""

    steps: list[Step]


class IncidentList(_Wire):
    """Incidents, oldest first."""

    incidents: list[Incident]


class Generation(_Wire):
    """One formation of a job's ranks."""

    number: int
    layout: Layout
    world_size: int
    ranks: list[RankPlacement]
    start_step: int
    """Number of committed steps at the start."""
    restore: dict[str, Any]
    cause: str
    time_s: float


class GenerationList(_Wire):
    """Generations, oldest first."""

    generations: list[Generation]


class Checkpoint(_Wire):
    """A checkpoint in durable storage."""

    step: int
    generation: int
    uri: str
    size_bytes: int
    files: int
    duration_s: float | None
    stall_s: float | None
    validation_loss: float | None
    created_at: float
    removed_at: float | None
    pinned: bool


class CheckpointList(_Wire):
    """Checkpoints, ordered by step."""

    checkpoints: list[Checkpoint]


class Ledger(_Wire):
    """The ledger of a job's samples, summed over its committed steps."""

    exact: bool
    steps: int
    samples: int
    samples_hash: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
    superseded: int
    problems: list[str]


class Why(_Wire):
    """Explanation of a job that waits, failed or is slow, with advice."""

    id: str
    state: JobState
    reason: str
    summary: str
    advice: list[str]
    conditions: list[Condition]
    phase: Phase | None
    error: dict[str, Any] | None
    incidents: list[Incident]
    queue_position: int | None
    estimated_start: str | None
    """ISO 8601, to the minute; null if the job is not queued or the start cannot be estimated."""
    recovery_s: float
    mean_recovery_s: float | None
    """Mean time from a failure to the next step (MTTR); null before the first recovery."""
    steps_lost: dict[str, int]
    """Number of repeated steps, by the reason of the incidents that caused them."""
    stall_ratio: float | None
    seconds: dict[str, float] = {}
    """Time spent, by class. The sum is the age of the job."""
    goodput: float | None
    """Goodput; null while the job is too young for a meaningful value."""
    choice: Choice | None = None
    """Reasons for the placement; null if the job has no nodes."""


class LogPiece(_Wire):
    """A piece of a rank's output."""

    generation: int
    rank: int
    stream: str
    offset: int
    """Offset of the first byte."""
    text: str


class ValidatedSpec(_Wire):
    """A valid spec with all defaults, and the layouts that it can run with."""

    spec: JobSpec
    ladder: list[Layout]


class Version(_Wire):
    """Versions of the server and of the API."""

    version: str
    api: str


class Health(_Wire):
    """Health of the server."""

    status: str
    checks: dict[str, str] = {}
    """Results by component: all with `verbose`, else only failures."""


class InvalidField(_Wire):
    """An invalid field of a request."""

    pointer: str
    """JSON pointer into the body, or the name of a parameter."""
    detail: str
    value: Any = None


class NewUpload(_Wire):
    """An archive of code that a client wants to upload."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str = Field(max_length=64, pattern="^[0-9a-f]{64}$")
    size_bytes: Integer = Field(ge=1, lt=2**53)


class Upload(_Wire):
    """The upload of an archive."""

    id: str
    """Id, derived from the content. Clients that upload the same archive share one upload."""
    archive: str
    """Value for `code.archive` of a spec when the upload is complete."""
    size_bytes: int
    offset_bytes: int
    """Offset at which the upload continues."""
    complete: bool
    """True if the archive is stored and verified."""


class UploadLimits(_Wire):
    """The largest sizes that the server accepts."""

    archive_bytes: int
    """Largest size of an archive."""
    piece_bytes: int
    """Largest body of a request."""
    total_bytes: int | None = None
    """Largest size of all archives and unfinished uploads together. Older servers have no such limit."""


class Problem(_Wire):
    """An error, for programs (`code`) and people (`detail`)."""

    type: str
    """Stable URN of the type of problem."""
    title: str
    status: int
    detail: str
    instance: str = ""
    """Path of the request."""
    code: str
    errors: list[InvalidField] = []
