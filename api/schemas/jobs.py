"""Wire models v1. Fields are added freely and never change their meaning; take enums as open. Times: Unix seconds."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from regroup.api.schemas.job_plan import Prediction
from regroup.api.schemas.topology import Choice
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import JobState
from regroup.service.spec.job import JobSpec


class _Wire(BaseModel):
    model_config = ConfigDict(from_attributes=True, frozen=True)


class Condition(_Wire):
    """Why a job is as it is: `reason` for programs, `message` for people."""

    type: str
    status: bool
    reason: str
    message: str
    last_transition_time: float


class Phase(_Wire):
    """How far starting has come."""

    phase: str
    fraction: float | None = None
    message: str | None = None
    time_s: float | None = None


class Incident(_Wire):
    """One cause, its evidence, the recovery action taken, its times and losses."""

    id: str
    number: int = 0
    """From 1 on, oldest first: names its evidence, `GET …/incidents/{number}/evidence`."""
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
    """When it struck, was seen, …: fault_s, seen_s, dead_s, decided_s, formed_s, restored_s, first_step_s;
    ended_s where the job ended before another step."""
    durations: dict[str, float | None] = {}
    """Seconds: detect, teardown, decide, form, restore, first_step, total."""
    evidence_bytes: int | None = None
    """Of what nodes left of it; None: they have not yet; 0: there is nothing, or it was given up for newer ones."""
    evidence_missing: dict[str, str] = {}
    """Nodes of which there is nothing, and why."""


class RankPlacement(_Wire):
    """Where one rank of the newest generation runs."""

    rank: int
    node_id: str = ""
    node_name: str = ""
    address: str = ""
    local_rank: int = 0
    device: int | str = ""
    """Index of its device on the node."""


class Digest(_Wire):
    """Hex digests of the result: equal digests, equal runs."""

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
    """Number of its newest event; `If-Match` compares it."""
    step: int
    """Committed steps."""
    steps: int | None
    """Steps it asked for; null for a script that did not say."""
    generation: int
    layout: Layout | None
    loss: float | None
    validation_loss: float | None
    tokens_per_s: float | None
    mfu: float | None = None
    """Model operations of the newest step over what its devices could have done in that time; null if not known."""
    exposed_communication: float | None = None
    """Part of the newest forward and backward in which ranks waited for each other, on average; CPUs only."""
    peak_bytes: float | None = None
    """Most memory that a rank had in the newest step."""
    pipeline_idle: float | None = None
    """Part of the newest forward and backward in which a rank of the pipeline computed nothing; null without one."""
    mirrored_step: int | None = None
    """Committed steps in the state that other nodes hold a copy of; null while there is none."""
    eta_s: float | None
    """Seconds to the last step at the present rate."""
    goodput: float | None
    """Share of its seconds since the start that made committed steps."""
    created_at: float
    started_at: float | None
    """Its devices were held for the first time."""
    finished_at: float | None


class Job(JobSummary):
    """A job, whole."""

    error: dict[str, Any] | None
    digest: Digest
    parameter_count: int | None
    result: dict[str, Any] = {}
    """What training code left in `run.result`, beside digests and counts; empty until it is done."""
    conditions: list[Condition]
    phase: Phase | None
    intents: dict[str, Any]
    """What was asked and is not done yet, e.g. `cancel`."""
    incidents: list[Incident]
    placement: list[RankPlacement]
    prediction: Prediction | None = None
    """Of its newest generation, beside what its steps took; null where the planner cannot describe the job."""
    rank_phases: dict[str, tuple[int, str]]
    """Rank → step and phase it was last seen in; empty when nothing runs."""
    storage_uri: str
    resume_uri: str | None
    spec: JobSpec
    """As submitted, with the layout if that was `auto`; secrets are references."""


class JobList(_Wire):
    """A page of jobs, newest first."""

    jobs: list[JobSummary]
    next_page_token: str
    """Empty at the end."""


class Event(_Wire):
    """One entry of a job's history; numbers are gapless."""

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
    """One committed step. A number that was not finite, or that nobody said, is null."""

    number: int
    """Place among all rows of the job: where a stream is resumed."""
    generation: int
    step: int
    time_s: float
    duration_s: float | None
    loss: float | None
    tokens: int | None
    """Null, as are samples and their hash, where the training code does not say: in scripts."""
    samples: int | None
    samples_hash: Annotated[str, Field(pattern="^[0-9a-f]{16}$")] | None
    """Sum modulo 2**64 of hash(epoch, index) over its samples, in hex."""
    learning_rate: float | None
    grad_norm: float | None
    validation_loss: float | None
    stall_s: float | None
    extra: dict[str, float | None]


class StepList(_Wire):
    """Committed steps in order; what a later generation did again is left out."""

    steps: list[Step]


class IncidentList(_Wire):
    """Oldest first."""

    incidents: list[Incident]


class Generation(_Wire):
    """One formation of a job's ranks."""

    number: int
    layout: Layout
    world_size: int
    ranks: list[RankPlacement]
    start_step: int
    """Committed steps it started from."""
    restore: dict[str, Any]
    cause: str
    time_s: float


class GenerationList(_Wire):
    """Oldest first."""

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
    """By step."""

    checkpoints: list[Checkpoint]


class Ledger(_Wire):
    """The account of a job's samples, folded over its committed steps."""

    exact: bool
    steps: int
    samples: int
    samples_hash: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
    superseded: int
    problems: list[str]


class Why(_Wire):
    """Why a job waits, failed or is slow, and what to do."""

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
    """ISO 8601, to the minute; null if it does not queue or cannot be told."""
    recovery_s: float
    mean_recovery_s: float | None
    """From a failure to the next step (MTTR); null before one was mended."""
    steps_lost: dict[str, int]
    """Steps done again, by the reason of the incidents that cost them."""
    stall_ratio: float | None
    seconds: dict[str, float] = {}
    """Where its time went, by class; they sum to its age."""
    goodput: float | None
    """None as long as it is too early to say."""
    choice: Choice | None = None
    """Why its nodes are these; null while it has none."""


class LogPiece(_Wire):
    """Some of a rank's output."""

    generation: int
    rank: int
    stream: str
    offset: int
    """Byte at which it begins."""
    text: str


class ValidatedSpec(_Wire):
    """A legal spec with every default filled in, and the sizes it may run at."""

    spec: JobSpec
    ladder: list[Layout]


class Version(_Wire):
    """What serves."""

    version: str
    api: str


class Health(_Wire):
    """Whether it serves."""

    status: str
    checks: dict[str, str] = {}
    """With `verbose`: what each part says."""


class InvalidField(_Wire):
    """One wrong field of a request."""

    pointer: str
    """JSON pointer into the body, or the name of a parameter."""
    detail: str
    value: Any = None


class NewUpload(_Wire):
    """An archive of code that somebody wants to bring."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    size_bytes: int = Field(ge=1, lt=2**53)


class Upload(_Wire):
    """An archive on its way."""

    id: str
    """Of what it brings: the same archive is the same upload, whoever brings it."""
    archive: str
    """What a spec says as `code.archive` once it is complete."""
    size_bytes: int
    offset_bytes: int
    """Where it goes on."""
    complete: bool
    """The archive is stored and verified."""


class UploadLimits(_Wire):
    """What the server takes."""

    archive_bytes: int
    """Largest archive."""
    piece_bytes: int
    """Largest body of one request."""


class Problem(_Wire):
    """What went wrong, for programs (`code`) and people (`detail`)."""

    type: str
    """Stable URN of the kind of problem."""
    title: str
    status: int
    detail: str
    instance: str = ""
    """Path of the request."""
    code: str
    errors: list[InvalidField] = []
