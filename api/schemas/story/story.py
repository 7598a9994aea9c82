"""Wire models of the story of a job: its course over time in few points. Times are in Unix seconds."""

from typing import Literal

from regroup.api.schemas.history import Checkpoint
from regroup.api.schemas.story.incident import IncidentAccount, RestoredFrom
from regroup.api.schemas.wire import Wire
from regroup.service.domain.layout import Layout


class StateSpan(Wire):
    """Time in which a job was in one state."""

    state: str
    """The state."""
    reason: str
    """Reason for it, for programs."""
    message: str
    """Reason for it, for people."""
    from_s: float
    """Time at which it began."""
    until_s: float | None
    """Time at which it ended; null if it lasts."""


class GenerationSpan(Wire):
    """One formation of a job's ranks over time."""

    number: int
    """Number of the generation; the first is 1."""
    from_s: float
    """Time at which it was formed."""
    until_s: float | None
    """Time at which it ended; null if it runs."""
    first_step_s: float | None
    """Time of its first step; null if it has none, or if its steps were removed."""
    last_step: int | None
    """Last step that it committed."""
    last_step_s: float | None
    """Time of that step."""
    kept_until_step: int | None
    """Last of its steps that counts, because later generations repeated the others; null if all count."""
    repeated: int
    """Number of its steps that later generations repeated."""
    world_size: int
    """Number of its ranks."""
    layout: Layout
    """Layout of its ranks."""
    start_step: int
    """Number of committed steps at its start."""
    restored_from: RestoredFrom
    """Source of its state."""
    cause: str
    """Reason for which it was formed: `start`, `restart`, or the reason of an incident."""


class PlaceOfRanks(Wire):
    """Generations in which a node had the same ranks."""

    first_generation: int
    """First of the generations."""
    last_generation: int
    """Last of the generations."""
    ranks: list[tuple[int, int]]
    """Ranks as pairs of the first and the last of neighbours."""


class NodeRow(Wire):
    """A node, and its ranks over time."""

    node_id: str
    """Id of the node in Ray."""
    name: str
    """Name of the node."""
    places: list[PlaceOfRanks]
    """Ranks on the node, oldest generation first."""


class Mark(Wire):
    """A moment in the course of a job: a request, a change of nodes, an observation."""

    event: int
    """Number of its event."""
    time_s: float
    """Time at which it happened."""
    kind: Literal["request", "nodes", "straggler", "checkpoint", "note"]
    """Kind of the mark."""
    generation: int
    """Generation to which it belongs; 0 if it belongs to none."""
    actor: str
    """Origin: a user, `controller`, `scheduler` or `supervisor`."""
    text: str
    """Content, for people."""


class StepMark(Wire):
    """The time of one step."""

    generation: int
    """Generation that committed the step."""
    step: int
    """Number of the step."""
    time_s: float
    """Time of its commit."""


class MirrorMark(Wire):
    """A step whose state other nodes held in memory."""

    generation: int
    """Generation whose state it is."""
    step: int
    """Number of the step."""
    time_s: float
    """Time at which all nodes held it."""


class Story(Wire):
    """Course of a job over time."""

    from_s: float
    """Time of the submission."""
    until_s: float
    """End of the job, or the present time of the server."""
    is_over: bool
    """True if the job has ended."""
    states: list[StateSpan]
    """States in order."""
    generations: list[GenerationSpan]
    """The newest 1000 generations, oldest first."""
    nodes: list[NodeRow]
    """Nodes with their ranks over time."""
    nodes_since_generation: int
    """First generation that `nodes` covers; 0 if there is none. Very large jobs have no places of old generations."""
    incidents: list[IncidentAccount]
    """The newest 300 incidents, oldest first."""
    checkpoints: list[Checkpoint]
    """The newest 600 checkpoints and all pinned ones, by step; also those that are no longer in storage."""
    mirrored_step: int | None
    """Newest step whose state other nodes hold in memory now; null if there is none."""
    mirrors: list[MirrorMark]
    """Some mirrored steps over the whole life of the job, oldest first; at most 300."""
    marks: list[Mark]
    """Requests, changes of nodes and observations, oldest first; of the newest 1000 events."""
    progress: list[StepMark]
    """Some steps, in the order of their commit, repeated ones too."""
    counts: dict[str, int]
    """Number of `generations`, `incidents` and `checkpoints` that the job had in all."""
