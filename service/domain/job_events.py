"""The events of a job that its supervisor emits: one dataclass per type, and the codec between them and stored data.

An event is stored as its type and a dictionary. The keys of the dictionary are the fields of the class. `NoteRecorded`
and `ResultRecorded` are open: the keys of their `data` are stored next to the other fields.
"""

import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Protocol, TypeVar

from regroup.service.domain.states import JobState, Reason
from regroup.workers.contract.codec import build, plain
from regroup.workers.contract.messages import StepRow


class EventType(StrEnum):
    """The types of events that a supervisor emits."""

    STATE = "state"
    PHASE = "phase"
    STEP = "step"
    REPORT = "report"
    NOTE = "note"
    GENERATION = "generation"
    RESUMED = "resumed"
    INCIDENT = "incident"
    RELOCATED = "relocated"
    CHECKPOINT = "checkpoint"
    CHECKPOINT_REMOVED = "checkpoint_removed"
    HELD = "held"
    STRAGGLERS = "stragglers"
    MIRROR = "mirror"
    RESULT = "result"


class RecoveryAction(StrEnum):
    """How a job continues after a generation."""

    NONE = ""
    """Not chosen yet."""
    RESPAWN = "respawn"
    """New ranks on the same nodes, from memory."""
    SPARE = "spare"
    """New ranks on other nodes, from memory."""
    SHRINK = "shrink"
    """Fewer ranks because nodes were lost, from memory."""
    RESIZE = "resize"
    """Another number of ranks by plan, from memory."""
    DISK = "disk"
    """New ranks from a checkpoint, or from the beginning."""
    FAIL = "fail"
    """The job ends."""


class MalformedEventError(ValueError):
    """An event has an unknown type, a missing field or a field of the wrong type."""


@dataclass(frozen=True)
class StateChanged:
    """The job entered a state."""

    state: JobState
    reason: Reason
    message: str = ""
    error: dict[str, Any] | None = None
    """The exception behind a failure: `kind`, `message` and `traceback`."""


@dataclass(frozen=True)
class PhaseProgressed:
    """A phase of starting began or progressed."""

    phase: str
    fraction: float | None = None
    """Between 0 and 1; None: unknown."""
    message: str = ""
    done_bytes: int | None = None
    total_bytes: int | None = None
    bytes_per_s: float | None = None
    """Bytes so far, bytes in all and the present rate, in a phase that moves bytes."""


@dataclass(frozen=True)
class MetricsReported:
    """A script reported metrics of a step after its row."""

    step: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class NoteRecorded:
    """An observation for people, such as a rejected snapshot."""

    kind: str
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    """Details, with keys that depend on `kind`."""


@dataclass(frozen=True)
class RankPlace:
    """The node and the device of one rank."""

    rank: int
    node_id: str
    node_name: str
    address: str
    local_rank: int
    device: int
    """Index of the device on its node."""


@dataclass(frozen=True)
class GenerationStarted:
    """The record of a generation was written; its ranks are forked next."""

    number: int
    layout: dict[str, int]
    """The output of `Layout.to_json`."""
    world_size: int
    ranks: tuple[RankPlace, ...]
    """Places of the ranks; empty for a large job, which has `rank_map`."""
    start_step: int
    restore: dict[str, Any] = field(default_factory=dict[str, Any])
    """The source of its state, as JSON."""
    cause: str = ""
    """`start`, `restart`, or the reason why the generation before it ended."""
    rank_map: dict[str, Any] | None = None
    """The output of `RankMap.to_json` for a large job. The history has it once, with the generation."""


@dataclass(frozen=True)
class ScriptResumed:
    """A script reported the step of the state that it loaded itself."""

    step: int
    has_step_count: bool = True
    """False: the script did not tell its step."""


@dataclass(frozen=True)
class IncidentRevised:
    """An incident was opened, or there is more evidence."""

    id: str
    cause: str
    """The cause in words."""
    reason: Reason
    revision: int = 0
    rank: int | None = None
    node_id: str | None = None
    evidence: dict[str, Any] | None = None
    generation: int = 0
    """The generation that it ended."""
    next_generation: int | None = None
    recovery_action: RecoveryAction = RecoveryAction.NONE
    at_step: int = 0
    """Last committed step before it."""
    steps_lost: int | None = None
    times: dict[str, float] = field(default_factory=dict[str, float])
    """Phase → Unix seconds at which it ended."""
    durations: dict[str, float] = field(default_factory=dict[str, float])
    """Phase → seconds."""
    evidence_bytes: int | None = None
    """Size of its evidence in durable storage; None: not collected yet; 0: there is none."""
    evidence_missing: dict[str, str] = field(default_factory=dict[str, str])
    """Name of each node without evidence → why."""


@dataclass(frozen=True)
class JobRelocated:
    """The job continues on other nodes or at another size."""

    nodes: tuple[dict[str, Any], ...]
    """The node assignments, as JSON."""
    former: dict[str, str]
    """Node id → name, of the nodes that it leaves and that still hold its state."""
    attempt: int
    layout: dict[str, int] | None = None
    """None: the layout of the job."""


@dataclass(frozen=True)
class CheckpointWritten:
    """A checkpoint is complete in durable storage."""

    step: int
    generation: int
    uri: str
    size_bytes: int = 0
    files: int = 0
    duration_s: float | None = None
    validation_loss: float | None = None
    written_bytes: int | None = None
    """Bytes of its new files. The rest of `size_bytes` is unchanged and belongs to older checkpoints."""
    write_s: float | None = None
    """Seconds for which the slowest of its nodes wrote."""


@dataclass(frozen=True)
class CheckpointRemoved:
    """A checkpoint was deleted by the retention rule."""

    step: int
    generation: int


@dataclass(frozen=True)
class JobHeld:
    """A failed job keeps its nodes (`hold_on_failure`)."""

    until_s: float
    """Unix seconds."""
    reason: Reason
    message: str = ""
    error: dict[str, Any] | None = None
    stacks: dict[str, Any] = field(default_factory=dict[str, Any])
    """Rank → its stack before it was killed."""


@dataclass(frozen=True)
class StragglerRank:
    """A rank that is slower than the others."""

    rank: int
    node: str
    """Name of its node."""
    work_s: float
    """Seconds of work per step."""
    usual_s: float
    """Median of the other ranks."""
    is_crowded: bool = False
    """True if it waits for a processor that another process on its node uses."""


@dataclass(frozen=True)
class StragglersChanged:
    """The set of stragglers changed."""

    ranks: tuple[StragglerRank, ...]


@dataclass(frozen=True)
class MirrorChanged:
    """Other nodes hold another mirrored set, or none."""

    step: int | None
    """None: no complete set exists."""
    sets: int = 2
    """Number of sets that the nodes have memory for."""
    why: str = ""
    """Why `sets` is less than 2."""


@dataclass(frozen=True)
class ResultRecorded:
    """All ranks ended with success."""

    step: int
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    """The return value of the leading rank."""


JobEvent = (
    StateChanged
    | PhaseProgressed
    | StepRow
    | MetricsReported
    | NoteRecorded
    | GenerationStarted
    | ScriptResumed
    | IncidentRevised
    | JobRelocated
    | CheckpointWritten
    | CheckpointRemoved
    | JobHeld
    | StragglersChanged
    | MirrorChanged
    | ResultRecorded
)

_TYPES: Mapping[type[Any], EventType] = {
    StateChanged: EventType.STATE,
    PhaseProgressed: EventType.PHASE,
    StepRow: EventType.STEP,
    MetricsReported: EventType.REPORT,
    NoteRecorded: EventType.NOTE,
    GenerationStarted: EventType.GENERATION,
    ScriptResumed: EventType.RESUMED,
    IncidentRevised: EventType.INCIDENT,
    JobRelocated: EventType.RELOCATED,
    CheckpointWritten: EventType.CHECKPOINT,
    CheckpointRemoved: EventType.CHECKPOINT_REMOVED,
    JobHeld: EventType.HELD,
    StragglersChanged: EventType.STRAGGLERS,
    MirrorChanged: EventType.MIRROR,
    ResultRecorded: EventType.RESULT,
}
EVENT_CLASSES: Mapping[str, type[Any]] = {kind.value: cls for cls, kind in _TYPES.items()}
"""Type → class."""
_OPEN = (NoteRecorded, ResultRecorded)
_MOST_SHAPES = 1000
_sound_shapes: set[tuple[type, ...]] = set()
"""Class and types of all fields, of events whose types were checked: nearly all steps have one of a few shapes."""


class StoredEvent(Protocol):
    """An encoded event."""

    @property
    def type(self) -> str: ...
    @property
    def data(self) -> Mapping[str, Any]: ...


E = TypeVar("E")


def type_of(event: JobEvent) -> EventType:
    """Return the type of an event."""
    return _TYPES[type(event)]


def encode(event: JobEvent) -> dict[str, Any]:
    """Return the data of an event as JSON data."""
    data: dict[str, Any] = plain(event)
    if isinstance(event, _OPEN):
        return {**{key: value for key, value in data.items() if key != "data"}, **data["data"]}
    return data


def decode(kind: str, data: Mapping[str, Any]) -> JobEvent:
    """Return the event of a type from its data. Unknown fields, of a newer supervisor, are ignored.

    Raises:
        MalformedEventError: the type is unknown, or a field is missing or has the wrong type.
    """
    cls = EVENT_CLASSES.get(kind)
    if cls is None:
        raise MalformedEventError(f"unknown event type {kind!r}; expected one of {', '.join(EVENT_CLASSES)}")
    if cls in _OPEN:
        named = {f.name for f in fields(cls)} - {"data"}
        rest = {key: value for key, value in data.items() if key not in named}
        data = {**{key: data[key] for key in named if key in data}, "data": rest}
    try:
        event = build(cls, data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MalformedEventError(f"malformed {kind!r} event: {error}") from error
    shape = (cls, *map(type, vars(event).values()))
    if shape in _sound_shapes:
        return event
    for name, hint in _hints(cls).items():
        value = getattr(event, name)
        if not _matches(hint, value):
            raise MalformedEventError(f"malformed {kind!r} event: {name}={value!r} is not of type {hint}")
    if len(_sound_shapes) < _MOST_SHAPES:
        _sound_shapes.add(shape)
    return event


def decoded(stored: Iterable[StoredEvent], cls: type[E]) -> list[E]:
    """Return the events of one class, in order."""
    kind = _TYPES[cls]
    return [typing.cast(E, decode(kind, event.data)) for event in stored if event.type == kind]


@cache
def _hints(cls: type[Any]) -> Mapping[str, Any]:
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls)}


def _matches(hint: Any, value: Any) -> bool:
    """Return whether a value has the type of a hint. Items of containers are not checked."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return any(_matches(option, value) for option in typing.get_args(hint))
    kind = typing.get_origin(hint) or hint
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return is_dataclass(value) if is_dataclass(kind) else isinstance(value, kind)
