"""What the store hands out: one frozen record per table. Times are Unix seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from regroup.service.domain.states import JobState
from regroup.service.spec.job import JobSpec
from regroup.service.spec.workload import requested_steps

HELD = "Held"
"""Condition of a job that failed and whose nodes are kept, to be looked at."""
EVEN_PACE = "EvenPace"
"""Condition of a job that trains; false while some rank keeps the others waiting."""
START_ESTIMATED = "StartEstimated"
"""Condition of a job that waits and was promised a start: its message is the time, in ISO 8601, to the minute."""
MIRRORED = "Mirrored"
"""Condition of a job that runs; false while it has fewer mirrors than it would, because nodes are short of memory."""
WELL_USED = "WellUsed"
"""Condition of a job that trains; false while it makes little use of its devices."""
NODES_REQUESTED = "NodesRequested"
"""Condition of a job that waits; true while the autoscaler of the cluster is asked for nodes for it."""
NODE_WELL = "NodeWell"
"""Condition of a job that runs; false while something goes short on one of its nodes."""


@dataclass(frozen=True)
class Lease:
    """The right to lead. Every write of the leader carries it; a newer token makes it worthless."""

    name: str
    holder: str
    token: int


@dataclass(frozen=True)
class Condition:
    """Why a job is as it is, for programs (`reason`) and people (`message`)."""

    type: str
    """E.g. `Placeable`."""
    status: bool
    reason: str
    message: str
    last_transition_time: float = 0.0
    """When `status` last changed; the store fills it."""


@dataclass(frozen=True)
class JobRow:
    """A job as stored."""

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
    """Counts every change of the row, also those without an event."""
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
    """Committed steps."""
    step_rows: int
    """Number of the newest step row."""
    loss: float | None
    validation_loss: float | None
    tokens_per_s: float | None
    step_duration_s: float | None
    """Moving average."""
    stall_s: float
    """Seconds in which training waited for snapshots and checkpoints, of all its steps."""
    mfu: float | None
    exposed_communication: float | None
    peak_bytes: float | None
    pipeline_idle: float | None
    """Of the newest step: the part of its time in which a rank of the pipeline computes nothing."""
    mirrored_step: int | None
    """Committed steps in the set that other nodes hold whole."""
    goodput: float | None
    result: dict[str, Any] | None
    rank_phases: dict[str, Any]
    """Rank → (step, phase) as the supervisor last told; empty when nothing runs."""
    supervisor_boot_id: str
    """Life of the supervisor that `acked_seq` counts in."""
    acked_seq: int

    @property
    def steps(self) -> int | None:
        """Steps the job asked for; None for a script of which nobody knows."""
        return requested_steps(self.spec)

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the spec."""
        return dict(self.spec.get("labels", {}))

    @property
    def is_held(self) -> bool:
        """It failed, and its nodes are kept for a while."""
        return any(condition.type == HELD for condition in self.conditions)

    def parsed_spec(self) -> JobSpec:
        """The spec as its model."""
        return JobSpec.model_validate(self.spec)


@dataclass(frozen=True)
class NewJob:
    """A job about to be queued."""

    id: str
    spec: JobSpec
    storage_uri: str
    resume_uri: str | None = None
    plan: Mapping[str, Any] | None = None
    """Of a job whose layout was chosen for it: what was asked, what the planner answered."""


@dataclass(frozen=True)
class Event:
    """One entry of a job's history. `number` is the job's version at that moment: gapless, in commit order."""

    job_id: str
    number: int
    type: str
    time_s: float
    generation: int
    actor: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One committed step as its generation reported it."""

    number: int
    """Place in the job's rows, in commit order."""
    generation: int
    step: int
    time_s: float
    duration_s: float | None
    loss: float | None
    """None when it was not finite, or nobody said."""
    tokens: int | None
    """None, like the sums of samples, where training code does not say."""
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
    ranks: list[dict[str, Any]]
    start_step: int
    """Committed steps in the state it started from; its first row is `start_step + 1`."""
    restore: dict[str, Any]
    cause: str
    time_s: float


@dataclass(frozen=True)
class Incident:
    """One cause, its evidence, the recovery action taken, its times and losses."""

    id: str
    number: int
    """Number of the event that first told of it."""
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
    """A named Ray object that a job may own. Written before the object is made."""

    job_id: str
    kind: AllocationKind
    name: str
    node_id: str = ""
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    """For a reservation: what it holds."""
    created_at: float = field(default=0.0, compare=False)
    """When it was allocated; the store fills it."""

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> "Allocation":
        """Build an allocation from a row of the database."""
        return replace(cls(**row), kind=AllocationKind(row["kind"]))

    @property
    def is_seat(self) -> bool:
        """A reservation that ranks sit in, or may."""
        return self.kind is AllocationKind.RESERVATION and not self.is_spare

    @property
    def is_spare(self) -> bool:
        """A reservation that is only held ready for ranks of a node that is lost or leaves."""
        return self.kind is AllocationKind.RESERVATION and bool(self.data.get("spare"))


@dataclass(frozen=True)
class ProjectRow:
    """What a project may hold and ask for."""

    name: str
    guaranteed: int = 0
    borrowable: int | None = None
    limit: int | None = None
    weight: float = 1.0
    admits: dict[str, Any] = field(default_factory=dict[str, Any])
    """What its jobs may ask for; see `service.admits.Admits`."""
    defaults: dict[str, Any] = field(default_factory=dict[str, Any])
    """Spec fields of its jobs where they do not say otherwise."""
    spares: int = 0
    """Idle nodes that are kept ready for its running jobs."""


@dataclass(frozen=True)
class DrainRow:
    """A node that somebody wants empty."""

    node_id: str
    node: str
    """What people call it."""
    reason: str
    actor: str
    requested_at: float
    deadline_at: float
    """It may be gone from then on."""


class Reported(Protocol):
    """An event as the supervisor reports it (`service.runtime.cluster.SupervisorEvent`)."""

    @property
    def seq(self) -> int: ...
    @property
    def key(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def time_s(self) -> float: ...
    @property
    def data(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Page:
    """Jobs, newest first, and the id after which the next page starts."""

    jobs: tuple[JobRow, ...]
    next_after: str | None


@dataclass(frozen=True)
class JobFilter:
    """What to list."""

    states: frozenset[JobState] = frozenset()
    project: str | None = None
    name: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Ledger:
    """The account of a job's samples, folded over its committed steps."""

    exact: bool
    """Every committed step is there once and saw exactly the global batch."""
    steps: int
    samples: int
    samples_hash: int
    """Sum modulo 2**64 over the committed steps."""
    superseded: int
    """Rows that a later generation did again."""
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Totals:
    """What the metrics show of the whole store."""

    jobs: Mapping[JobState, int]
    incidents: Mapping[str, int]
    """By cause."""
    checkpoint_bytes: int
    """Held in storage now."""
    queue_wait_s: float
    """How long the longest-waiting queued job has waited; 0 with an empty queue."""
