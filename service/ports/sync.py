"""The records that the controller and a supervisor exchange in `sync`, a long poll."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from regroup.service.domain.layout import Layout
from regroup.service.domain.states import Reason
from regroup.service.domain.step_columns import StepColumns, split_steps
from regroup.service.ports.assignment import NodeAssignment, PlannedChange
from regroup.workers.contract.codec import build, plain

READY = "ready"
"""State of a spare node that can take ranks at once."""


@dataclass(frozen=True)
class EndRequest:
    """A request to end the job."""

    reason: Reason
    message: str = ""


@dataclass(frozen=True)
class PinnedCheckpoint:
    """A checkpoint that must not be removed."""

    step: int
    generation: int


@dataclass(frozen=True)
class SecretValues:
    """Values of the project's secrets that a job uses. They are in memory only, on their way to the agents."""

    version: str
    """Name of these values. Others have another name."""
    values: dict[str, str] = field(repr=False)
    """Secret → value."""


@dataclass(frozen=True)
class Intents:
    """Requests of the controller to the supervisor of a live job. Repeated with every sync until they are fulfilled."""

    cancel: bool = False
    end: EndRequest | None = None
    release: bool = False
    """Release a job that is held after a failure."""
    pins: tuple[PinnedCheckpoint, ...] = ()
    nodes: tuple[NodeAssignment, ...] = ()
    """All nodes of the job. Empty: those on which it was placed."""
    layout: Layout | None = None
    """The layout on `nodes`. None: that of the supervisor."""
    change: PlannedChange | None = None
    """Why nodes or layout change, if there is time to prepare the change."""
    spares: tuple[NodeAssignment, ...] = ()
    """Nodes that must be ready for ranks."""
    no_spare: str = ""
    """Why no node can replace a lost one."""
    secrets: SecretValues | None = None
    """Values for the generations that start from now on. Sent until the status has their version."""

    def merge(self, other: "Intents") -> "Intents":
        """Return these intents with those that `other` sets; `other` wins."""
        if other is NO_INTENTS or other == NO_INTENTS:
            return self
        return replace(self, **other.set_fields())

    def set_fields(self) -> dict[str, Any]:
        """Return the intents that are set, by name."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(NO_INTENTS, name)}


NO_INTENTS = Intents()
"""No request."""


@dataclass(frozen=True)
class SyncRequest:
    """The controller's side of a sync."""

    intents: Intents = field(default_factory=Intents)
    acked_seq: int = 0
    """Events up to this one are in the database."""
    boot_id: str = ""
    """The supervisor incarnation in which `acked_seq` counts; for another one it counts as 0."""
    wait_s: float = 0.0
    """Time for which the supervisor may delay the reply while it has no events."""
    gather_s: float = 0.0
    """Time for which it may delay events about steps, so that several of them arrive together."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return plain(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "SyncRequest":
        """Parse the output of `to_json`."""
        return build(cls, data)


@dataclass(frozen=True)
class SupervisorEvent:
    """One event of a supervisor. Its key is unique in the job's life, so a repetition changes nothing."""

    seq: int
    """From 1, per incarnation of the supervisor."""
    key: str
    type: str
    generation: int
    time_s: float
    """Unix seconds."""
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class UnreadyNodes:
    """New nodes of the job that cannot be used."""

    nodes: tuple[str, ...]
    """Ids of all desired nodes of the job, sorted."""
    why: str


@dataclass(frozen=True)
class SaveStatus:
    """A checkpoint that the nodes of a job are writing."""

    step: int
    generation: int
    message: str
    """Progress for people."""
    done_bytes: int
    """Bytes that are written."""
    total_bytes: int
    """Bytes to write in all, of the nodes that have begun."""
    bytes_per_s: float
    """Rate of the last seconds."""


@dataclass(frozen=True)
class SupervisorStatus:
    """The present state of a supervisor. It is not stored."""

    state: str = ""
    phase: str = ""
    step: int = 0
    generation: int = 0
    ranks: dict[str, Any] | None = None
    """Activity of the ranks, as `domain/rank_reports.py` encodes it. None: it was sent recently."""
    lost: tuple[str, ...] = ()
    """Ids of the nodes that it waits for."""
    nodes: tuple[str, ...] = ()
    """Ids of the job's nodes, sorted."""
    ranks_by_node: dict[str, int] = field(default_factory=dict[str, int])
    """Node id → number of ranks."""
    layout: Layout | None = None
    former: tuple[str, ...] = ()
    """Ids of nodes that the job has left and that still hold its state."""
    unready: UnreadyNodes | None = None
    incident: dict[str, Any] | None = None
    """The open incident, as the API shows it."""
    storage_proof: str = ""
    """Name of the file that nodes of the job see in durable storage; empty: none has proven it yet."""
    storage_nodes: tuple[str, ...] = ()
    """Names of the nodes that see it."""
    secrets_version: str = ""
    """Version of the secrets that it has; empty without any."""
    save: SaveStatus | None = None
    """The checkpoint that is being written, if that takes long."""
    spares: dict[str, str] = field(default_factory=dict[str, str])
    """Node id → `ready`, empty while the node is prepared, or why it cannot be used."""


@dataclass(frozen=True)
class SyncReply:
    """The supervisor's side of a sync."""

    boot_id: str
    events: tuple[SupervisorEvent, ...] = ()
    """Events after the acknowledged one, oldest first, without the steps."""
    status: SupervisorStatus = field(default_factory=SupervisorStatus)
    steps: StepColumns = field(default_factory=StepColumns)
    """Committed steps after the acknowledged event. Numbers of events and steps tell their common order."""

    @classmethod
    def of(cls, boot_id: str, events: Sequence[SupervisorEvent], status: SupervisorStatus) -> "SyncReply":
        """Return the reply with all events after the acknowledged one, oldest first."""
        steps, others = split_steps(events)
        return cls(boot_id, tuple(others), status, steps)

    @property
    def newest_seq(self) -> int:
        """Number of the newest event; 0 without any."""
        return max([0, *(event.seq for event in self.events[-1:]), *self.steps.seq[-1:]])

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return plain(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "SyncReply":
        """Parse the output of `to_json`."""
        return build(cls, data)
