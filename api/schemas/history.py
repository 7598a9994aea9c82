"""Wire models of history: events, steps, generations, checkpoints and output of a job, and notices of all changes.

Times are in Unix seconds.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from regroup.api.schemas.jobs import Incident, RankPlacement
from regroup.api.schemas.wire import Wire
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import JobState


class Event(Wire):
    """One entry of a job's history. The numbers have no gaps."""

    job_id: str
    """Id of the job."""
    number: int
    """Number of the event; the first is 1."""
    type: str
    """Type, for example `state` or `incident`. It decides the keys of `data`."""
    time_s: float
    """Time at which it happened."""
    generation: int
    """Generation to which it belongs; 0 if it belongs to none."""
    actor: str
    """Origin: a user, `controller`, `scheduler` or `supervisor`."""
    data: dict[str, Any]
    """Content of the event."""


class EventList(Wire):
    """Events in order."""

    events: list[Event]
    """The events."""


class Step(Wire):
    """One committed step. Values that were not finite or not reported are null."""

    number: int
    """Position among all rows of the job, at which a stream can be resumed."""
    generation: int
    """Generation that committed the step."""
    step: int
    """Number of the step; the first is 1."""
    time_s: float
    """Time of the commit."""
    duration_s: float | None
    """Duration in seconds, with the wait for snapshots."""
    loss: float | None
    """Mean loss over the samples of the step."""
    tokens: int | None
    """Number of tokens; null for scripts, which do not report it. The same applies to samples and their hash."""
    samples: int | None
    """Number of samples."""
    samples_hash: Annotated[str, Field(pattern="^[0-9a-f]{16}$")] | None
    """Sum modulo 2**64 of hash(epoch, index) over its samples, in hex."""
    learning_rate: float | None
    """Learning rate of the optimizer's first group."""
    grad_norm: float | None
    """Norm of all gradients, before they are clipped."""
    validation_loss: float | None
    """Loss on the held-out data, if it was evaluated after this step."""
    stall_s: float | None
    """Part of the duration in which training waited for a snapshot or checkpoint."""
    extra: dict[str, float | None]
    """Further metrics by name, of regroup and of the training code."""


class StepList(Wire):
    """Committed steps in order, without rows that a later generation replaced."""

    steps: list[Step]
    """The steps."""


class CurvePoints(Wire):
    """Points of a line, in order. Each list has one entry for each point."""

    steps: list[int]
    """Newest step of each point."""
    times_s: list[float]
    """Time of its commit."""
    mean: list[float]
    """Mean over the steps of the point."""
    low: list[float]
    """Smallest value."""
    high: list[float]
    """Largest value."""


class RepeatedCurve(Wire):
    """Steps that a later generation repeated."""

    generation: int
    """Generation whose steps were repeated."""
    points: CurvePoints
    """The values that do not count."""


class PredictedValue(Wire):
    """Prediction of the planner for one generation."""

    generation: int
    """Number of the generation."""
    start_step: int
    """Number of committed steps at its start."""
    value: float
    """Predicted value."""


class Curve(Wire):
    """Curve of one metric."""

    metric: str
    """Name of the metric."""
    committed: CurvePoints
    """Steps that count."""
    repeated: list[RepeatedCurve] = []
    """Steps that do not count, by generation."""
    predicted: list[PredictedValue] = []
    """Predictions of the planner."""


class Curves(Wire):
    """Curves of a job's metrics, in few points."""

    steps_per_point: int
    """Number of neighbouring steps that one point stands for."""
    curves: list[Curve]
    """The curves, in the order of the request."""


class IncidentList(Wire):
    """Incidents, oldest first."""

    incidents: list[Incident]
    """The incidents."""


class Generation(Wire):
    """One formation of a job's ranks."""

    number: int
    """Number of the generation; the first is 1."""
    layout: Layout
    """Layout of its ranks."""
    world_size: int
    """Number of its ranks."""
    ranks: list[RankPlacement]
    """Places of its ranks."""
    start_step: int
    """Number of committed steps at the start."""
    restore: dict[str, Any]
    """Source of its state: `source` (none, memory or checkpoint), `step` and `uri`."""
    cause: str
    """Reason for which it was formed: `start`, `restart`, or the reason of an incident."""
    time_s: float
    """Time at which it was recorded."""


class GenerationList(Wire):
    """Generations, oldest first."""

    generations: list[Generation]
    """The generations."""


class Checkpoint(Wire):
    """A checkpoint in durable storage."""

    step: int
    """Number of committed steps in its state."""
    generation: int
    """Generation that saved it."""
    uri: str
    """Folder of the checkpoint."""
    size_bytes: int
    """Size of all its files."""
    files: int
    """Number of its files."""
    duration_s: float | None
    """Time from the snapshot to the complete checkpoint."""
    stall_s: float | None
    """Time for which training waited for its snapshot. None if its generation has no later step yet."""
    validation_loss: float | None
    """Loss on the held-out data at this step, if it was evaluated."""
    created_at: float
    """Time at which it was complete."""
    removed_at: float | None
    """Time at which retention removed it; null if it is still in storage."""
    pinned: bool
    """True if retention must not remove it."""


class CheckpointList(Wire):
    """Checkpoints, ordered by step."""

    checkpoints: list[Checkpoint]
    """The checkpoints."""


class CheckpointFile(Wire):
    """A file of a checkpoint."""

    name: str
    """Path of the file below the folder of the checkpoint."""
    size_bytes: int
    """Size of the file."""
    crc32: int
    """CRC-32 of its content."""


class CheckpointFiles(Wire):
    """A checkpoint with the files that its manifest lists, and commands that copy it and read it."""

    checkpoint: Checkpoint
    """The checkpoint."""
    files: list[CheckpointFile]
    """Files in the order of the manifest."""
    size_bytes: int
    """Size of all files."""
    copy_command: str
    """Shell command that copies the folder to the working folder."""
    export_command: str
    """Shell command that writes the parameters as one safetensors file."""
    load_code: str
    """Python code that loads the checkpoint with `torch.distributed.checkpoint`."""


class CheckpointFault(Wire):
    """A file of a checkpoint that is not as the manifest says."""

    name: str
    """Path of the file below the folder of the checkpoint."""
    problem: str
    """Difference, for people."""


class CheckpointVerification(Wire):
    """Result of a part of a verification."""

    step: int
    """Step of the checkpoint."""
    generation: int
    """Generation that saved it."""
    uri: str
    """Folder of the checkpoint."""
    files: int
    """Number of files in the manifest."""
    size_bytes: int
    """Size of all files, as the manifest says."""
    verified_files: int
    """Number of files whose content was compared, in all parts together."""
    verified_bytes: int
    """Number of bytes that were compared, in all parts together."""
    faults: list[CheckpointFault]
    """Faults that this part found. A client adds those of all parts."""
    position: str
    """Position for the next part; empty if this was the last one."""
    is_complete: bool
    """True if nothing follows."""


class Ledger(Wire):
    """The ledger of a job's samples, summed over its committed steps."""

    exact: bool
    """True if every committed step saw each of its samples exactly once."""
    steps: int
    """Number of committed steps."""
    samples: int
    """Number of their samples."""
    samples_hash: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
    """Sum modulo 2**64 of the hashes of these samples, in hex."""
    superseded: int
    """Number of steps that a later generation repeated."""
    problems: list[str]
    """Reasons why the ledger is not exact, for people."""


NEXT_OFFSET = "Log-Next-Offset"
"""Header of an answer with a part of a rank's output: the offset of the next part."""
COMPLETE = "Log-Complete"
"""Header of the same answer: `true` if the rank has ended and nothing follows."""


SIZE = "Log-Size"
"""Header of the same answer: the number of bytes that the output has now."""


class LogPart(Wire):
    """A part of a rank's output, as a client reads it with a limit."""

    text: str
    """The output. Bytes that are not UTF-8 are replaced."""
    next_offset: int
    """Offset of the next part. It equals the requested offset if there is no more output yet."""
    is_complete: bool
    """True if the rank has ended and nothing follows."""
    size_bytes: int = 0
    """Number of bytes that the output has now; 0 if the server is too old to say it."""


class LogPiece(Wire):
    """A piece of a rank's output."""

    generation: int
    """Generation of the rank."""
    rank: int
    """Number of the rank."""
    stream: str
    """`stdout` or `stderr`."""
    offset: int
    """Offset of the first byte."""
    text: str
    """The output. Bytes that are not UTF-8 are replaced."""


class Notice(Wire):
    """One change. Its object has the details."""

    number: int
    """Position in the order of all notices, at which a stream can be resumed. The numbers have gaps."""
    topic: Literal["job", "node", "project", "stream"]
    """Kind of the object. The topic `stream` is for notices about the stream itself."""
    kind: str
    """Type of the job's event, for example `state` or `incident`; kind of the node's event, for example `cordoned`,
    `drain` or `undrain`; `put` or `delete` for a project. `save` has no event: the job shows the progress of a
    checkpoint from then on. Of a stream: `start` has the number at which it begins, and `missed` tells that notices
    were removed before the client got them, so that it must read all objects again."""
    time_s: float
    """Time of the change."""
    project: str | None = None
    """Project that has changed, or project of the job."""
    job: str | None = None
    """Id of the job."""
    event: Annotated[int, Field(ge=1)] | None = None
    """Number of the event of the job."""
    state: JobState | None = None
    """State of the job after the change."""
    node: str | None = None
    """Name of the node."""


class NoticeList(Wire):
    """A part of the list of notices."""

    notices: list[Notice]
    """The notices that the sender may see, in order."""
    next_after: int
    """Value of `after` for the next part."""
    is_complete: bool
    """False if notices after `after` were removed: they are kept for an hour. Read the objects again then."""
