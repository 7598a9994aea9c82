"""The records of the store, one frozen dataclass per table. Times are Unix seconds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.domain.states import JobState
from regroup.service.domain.versions import etag_of
from regroup.service.spec.issues import describe_error
from regroup.service.spec.job import JobSpec
from regroup.service.spec.workload import requested_steps
from regroup.service.store.schema.json_values import plain

HELD = "Held"
"""Condition of a failed job whose nodes stay allocated for debugging."""
EVEN_PACE = "EvenPace"
"""Condition of a job that trains; false while a rank delays the others."""
START_ESTIMATED = "StartEstimated"
"""Condition of a waiting job with a reserved start: its message is the time, in ISO 8601, to the minute."""
MIRRORED = "Mirrored"
"""Condition of a running job; false while it has fewer mirrors than configured, because nodes are short of memory."""
STEPS_COUNTED = "StepsCounted"
"""Condition of a script; false if it repeated an unknown number of steps, which count twice."""
WELL_USED = "WellUsed"
"""Condition of a job that trains; false while its device utilization is low."""
PLACEABLE = "Placeable"
"""Condition of a job that waits: false, with the reason."""
NODES_REQUESTED = "NodesRequested"
"""Condition of a waiting job; true while the cluster's autoscaler has a request for its nodes."""
WITHIN_BUDGET = "WithinBudget"
"""Condition of a job that waits or is suspended: false if its budget, or that of its project, is used up."""
NODE_WELL = "NodeWell"
"""Condition of a running job; false while one of its nodes is short of a resource or has a fault."""
PLATFORM_FAULT = "PlatformFault"
"""Condition of a job; true while regroup itself fails to handle it. Other jobs are not affected."""

TERMINATING = "Terminating"
"""Condition of a job whose ranks have got SIGTERM, until all have ended or are killed."""


@dataclass(frozen=True)
class Lease:
    """The right to lead. Every write of the leader carries it. A newer token invalidates it."""

    name: str
    holder: str
    token: int


@dataclass(frozen=True)
class Condition:
    """A condition of a job, with its cause for programs (`reason`) and people (`message`)."""

    type: str
    """Type of the condition, e.g. `Placeable`."""
    status: bool
    reason: str
    message: str
    last_transition_time: float = 0.0
    """Time of the last change of `status`. The store sets it."""


@dataclass(frozen=True)
class JobRow:
    """The row of a job."""

    id: str
    project: str
    name: str
    owner: str
    spec: dict[str, Any]
    storage_uri: str
    resume_uri: str | None
    state: JobState
    reason: str
    message: str
    error: dict[str, Any] | None
    version: int
    """Number of the newest event."""
    revision: int
    """Number of changes of the row, also those without an event."""
    intents: dict[str, Any]
    conditions: tuple[Condition, ...]
    phase: dict[str, Any] | None
    created_at: float
    queued_at: float
    started_at: float | None
    finished_at: float | None
    generation: int
    layout: dict[str, int] | None
    step: int
    """Number of committed steps."""
    step_rows: int
    """Number of the newest step row."""
    loss: float | None
    validation_loss: float | None
    tokens_per_s: float | None
    step_duration_s: float | None
    """Moving average of the step time."""
    stall_s: float
    """Seconds that training waited for snapshots and checkpoints, in all steps."""
    mfu: float | None
    exposed_communication: float | None
    peak_bytes: float | None
    pipeline_idle: float | None
    """Share of the newest step's time in which a rank of the pipeline computes nothing."""
    mirrored_step: int | None
    """Step of the newest set of snapshots that is fully mirrored."""
    goodput: float | None
    result: dict[str, Any] | None
    rank_phases: dict[str, Any]
    """Rank → step and phase in the supervisor's newest report; empty if no rank runs. If they were measured, the
    seconds of a step in which it computes and waits for a processor, and the seconds since it moved on, follow."""
    supervisor_boot_id: str
    """Incarnation of the supervisor that `acked_seq` belongs to."""
    acked_seq: int
    save: dict[str, Any] | None = None
    """The checkpoint that is being written, if that takes long: the fields of `SaveStatus`."""
    author: str = ""
    """Identity that submitted the job; empty if a server of an earlier version stored it."""
    reported_at: float | None = None
    """Unix seconds at which its supervisor answered last, up to half a minute older than that; None: it never did."""
    damaged: tuple[str, ...] = ()
    """Columns whose stored values could not be read and were replaced."""

    @property
    def steps(self) -> int | None:
        """Requested number of steps; None for a script that does not declare it."""
        try:
            return requested_steps(self.spec)
        except (KeyError, TypeError, ValueError, AttributeError):  # a stored spec that is damaged or no longer valid
            return None

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the spec."""
        labels = self.spec.get("labels")
        return dict(labels) if isinstance(labels, dict) else {}

    @property
    def is_held(self) -> bool:
        """True if the job failed and its nodes stay allocated for debugging."""
        return any(condition.type == HELD for condition in self.conditions)

    @property
    def platform_fault(self) -> Condition | None:
        """Condition with the reason why regroup fails to handle the job; None if it does not."""
        return next((condition for condition in self.conditions if condition.type == PLATFORM_FAULT), None)

    @property
    def step_is_estimated(self) -> bool:
        """True if a script repeated an unknown number of steps, so that `step` counts them twice."""
        return any(condition.type == STEPS_COUNTED for condition in self.conditions)

    def parsed_spec(self) -> JobSpec:
        """Return the spec as its model. Raise SpecError if the stored spec is damaged, or no longer valid."""
        try:
            return JobSpec.model_validate(self.spec)
        except ValidationError as error:
            issue = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in issue["loc"])
            message = f"the stored spec of job {self.id} is not valid: {describe_error(issue)}"
            raise SpecError([FieldIssue(place, message)]) from error


@dataclass(frozen=True)
class JobPosition:
    """Position of a job in its history, for those who follow it."""

    state: JobState
    version: int
    """Number of its newest event."""
    step_rows: int
    """Number of its newest step row."""


@dataclass(frozen=True)
class NewJob:
    """A job about to be queued."""

    id: str
    spec: JobSpec
    storage_uri: str
    resume_uri: str | None = None
    plan: Mapping[str, Any] | None = None
    """Request and result of the planner, if it chose the layout."""


@dataclass(frozen=True)
class Event:
    """One entry of a job's history. `number` is the job's version at that time: without gaps, in commit order."""

    job_id: str
    number: int
    type: str
    time_s: float
    generation: int
    actor: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One committed step, as its generation reported it."""

    number: int
    """Place in the job's rows, in commit order."""
    generation: int
    step: int
    time_s: float
    duration_s: float | None
    loss: float | None
    """None if it was not finite or not reported."""
    tokens: int | None
    """None, like the sums of samples, if training code does not report it."""
    samples: int | None
    samples_hash: int | None
    learning_rate: float | None
    grad_norm: float | None
    validation_loss: float | None
    stall_s: float | None
    extra: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Generation:
    """One formation of a job's ranks."""

    number: int
    layout: dict[str, int]
    world_size: int
    ranks: Sequence[dict[str, Any]]
    start_step: int
    """Number of committed steps in the restored state. Its first row is step `start_step + 1`."""
    restore: dict[str, Any]
    cause: str
    time_s: float


@dataclass(frozen=True)
class Incident:
    """One cause, its evidence, the recovery action, its times and losses."""

    id: str
    number: int
    """Number of the first event that reported it."""
    cause: str
    time_s: float
    data: dict[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in durable storage."""

    step: int
    generation: int
    uri: str
    size_bytes: int
    files: int
    duration_s: float | None
    stall_s: float | None
    """Seconds for which training waited for its snapshot; None if its generation has no later step."""
    validation_loss: float | None
    created_at: float
    removed_at: float | None
    pinned: bool


class AllocationKind(StrEnum):
    """Kinds of Ray objects that a job may own."""

    SUPERVISOR = "supervisor"
    AGENT = "agent"
    RESERVATION = "reservation"


@dataclass(frozen=True)
class Allocation:
    """A named Ray object that a job may own. The row is written before the object is created."""

    job_id: str
    kind: AllocationKind
    name: str
    node_id: str = ""
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    """Resources, for a reservation; the assignment, for a supervisor."""
    created_at: float = field(default=0.0, compare=False)
    """Time of the allocation. The store sets it."""

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> "Allocation":
        """Build an allocation from a row of the database."""
        kinds = set(AllocationKind)
        kind = AllocationKind(row["kind"]) if row["kind"] in kinds else AllocationKind.RESERVATION
        return replace(cls(**row), kind=kind)

    @property
    def is_for_ranks(self) -> bool:
        """True for a reservation for ranks of the job."""
        return self.kind is AllocationKind.RESERVATION and not self.is_spare

    @property
    def is_spare(self) -> bool:
        """True for a reservation of a spare node, for ranks of a node that is lost or leaves."""
        return self.kind is AllocationKind.RESERVATION and bool(self.data.get("spare"))


@dataclass(frozen=True)
class ProjectRow:
    """The quota and the rules of a project."""

    name: str
    guaranteed: int = 0
    borrowable: int | None = None
    limit: int | None = None
    weight: float = 1.0
    admits: dict[str, Any] = field(default_factory=dict[str, Any])
    """Limits for the specs of its jobs, in the form of `service.spec.project_limits.ProjectLimits`."""
    defaults: dict[str, Any] = field(default_factory=dict[str, Any])
    """Default values of spec fields of its jobs."""
    spares: int = 0
    """Number of idle nodes that are reserved for its running jobs."""
    budget: dict[str, Any] | None = None
    """Budget of its jobs, in the form of `service.spec.budget.ProjectBudget`; None for none."""

    @property
    def etag(self) -> str:
        """Entity tag of these settings."""
        return etag_of(plain(asdict(self)))


@dataclass(frozen=True)
class DrainRow:
    """The request of a user to drain a node."""

    node_id: str
    node: str
    """Name of the node."""
    reason: str
    actor: str
    requested_at: float
    deadline_at: float
    """Time after which the node may be removed."""

    @property
    def etag(self) -> str:
        """Entity tag of this request."""
        return etag_of(asdict(self))


@dataclass(frozen=True)
class Page:
    """Jobs, the newest first, and the id after which the next page starts."""

    jobs: tuple[JobRow, ...]
    next_after: str | None


@dataclass(frozen=True)
class JobFilter:
    """A filter of a list of jobs. Unset fields match all jobs."""

    states: frozenset[JobState] = frozenset()
    projects: frozenset[str] | None = None
    """Jobs of these projects; None for all."""
    name: str | None = None
    author: str | None = None
    """Jobs that this identity submitted."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    ids: frozenset[str] = frozenset()
    """Only these jobs; all if it is empty."""


@dataclass(frozen=True)
class Ledger:
    """The account of a job's samples, folded over its committed steps."""

    exact: bool
    """True if every committed step exists once and used exactly the global batch."""
    steps: int
    samples: int
    samples_hash: int
    """Sum of the sample hashes of the committed steps, modulo 2**64."""
    superseded: int
    """Number of rows that a later generation repeated."""
    problems: tuple[str, ...]
