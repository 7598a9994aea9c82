"""The versioned messages between ranks, agents and supervisor. No torch, no ray.

`encode` writes JSON with type and `CONTRACT_VERSION`, `decode` refuses others. Times, in Unix seconds, are for people.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, get_args

from regroup.workers.contract.activity_report import ActivityReport
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.codec import build, plain
from regroup.workers.contract.rank_config import RankConfig
from regroup.workers.contract.rank_error import RankError
from regroup.workers.contract.start_messages import Begin, Prepared, Restore
from regroup.workers.contract.state_messages import (
    Buffers,
    BuffersRequest,
    SourceReleaseRequest,
    StateCatalogRequest,
    StateReply,
    StateRequest,
)
from regroup.workers.contract.storage_progress import SaveProgress, StorageProgress

CONTRACT_VERSION = 4


class ContractError(Exception):
    """A message of another version or of an unknown type."""


class Phase(StrEnum):
    """Phase of a rank, as written to shared memory and addressed by faults."""

    BOOT = "boot"
    JOIN = "join"
    BUILD = "build"
    RESTORE = "restore"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    SNAPSHOT = "snapshot"
    VALIDATION = "validation"
    CHECKPOINT = "checkpoint"
    DONE = "done"


# ---------------------------------------------------------------- agent -> rank


@dataclass(frozen=True)
class Join:
    """Everything a booted rank learns about its place. Nothing before it depends on rank, world or generation."""

    job_id: str
    generation: int
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    node_count: int
    layout: dict[str, int]
    device: str
    """`cpu` or `cuda`; the device itself was fixed in prepare."""
    store_host: str
    store_port: int
    restore: Restore
    entry: str
    """`module:function` of the training function, `script:PATH`, or `script-module:NAME` for one like `python -m`."""
    config: RankConfig
    """The configuration of the job's ranks, the same for all of them."""
    dataset: dict[str, Any] = field(default_factory=dict[str, Any])
    """Paths on this node of the prepared data, with their fingerprints."""
    faults_fired: tuple[int, ...] = ()
    """Indexes of faults that were injected already."""
    node_name: str = ""
    """Name of this node, for people."""
    node_devices: tuple[int, ...] = ()
    """Devices of this node that the job's ranks hold, by local rank."""


@dataclass(frozen=True)
class Stop:
    """Commit the step you agree on, then end: a planned stop."""

    reason: str
    save: bool = False
    """Hold that step for a checkpoint: nothing else of the job will be left."""


@dataclass(frozen=True)
class MirrorDue:
    """To the leading rank alone: let all ranks hold the next set for their nodes' mirrors."""


AgentRequest = Stop | MirrorDue
"""Message that an agent sends to training ranks on its own initiative."""


@dataclass(frozen=True)
class FaultGranted:
    """Reply to `FaultDue`: inject the fault only if `granted`."""

    index: int
    granted: bool


# ---------------------------------------------------------------- rank -> agent


@dataclass(frozen=True)
class Joined:
    """The process group of this generation stands."""

    rank: int
    generation: int
    time_s: float


@dataclass(frozen=True)
class Restored:
    """State is in place; the next step is `step + 1`. A script's rank sends it with its first step."""

    rank: int
    generation: int
    step: int
    time_s: float
    has_step_count: bool = True
    """False: the number of steps in the script's state is unknown, and counting continues from the last known step."""


@dataclass(frozen=True)
class StepRow:
    """One committed step, sent by the leading rank before it copies the snapshot of that step.

    A field is None if it is unknown: a script's step has only its number, time and learning rate.
    """

    generation: int
    step: int
    time_s: float
    duration_s: float | None
    loss: float | None
    tokens: int | None
    """Valid (not ignored) tokens of the step, all ranks."""
    samples: int | None
    """Samples that arrived in forward, all ranks."""
    samples_hash: int | None
    """Sum modulo 2**64 of hash(epoch, i) over them."""
    learning_rate: float | None
    grad_norm: float | None
    validation_loss: float | None = None
    stall_s: float = 0.0
    """Seconds of this step in which training waited for a snapshot or checkpoint."""
    extra: dict[str, float] = field(default_factory=dict[str, float])
    """Metrics that training code reported."""


@dataclass(frozen=True)
class Report:
    """Numbers that a script's code reported of a step, after the row of that step."""

    generation: int
    step: int
    time_s: float
    metrics: dict[str, float]


class PinnedFor(StrEnum):
    """Purpose of a pinned snapshot."""

    CHECKPOINT = "checkpoint"
    MIRROR = "mirror"


@dataclass(frozen=True)
class Pinned:
    """This rank's snapshot of `step` is complete and held until the agent releases it."""

    rank: int
    generation: int
    step: int
    buffer: int
    purpose: PinnedFor = PinnedFor.CHECKPOINT
    copies: dict[str, int] = field(default_factory=dict[str, int])
    """Group of tensors that may differ between ranks → checksum of this rank's copy."""


@dataclass(frozen=True)
class StateDigest:
    """Digest of this rank's whole state after `step`, for the restart check."""

    rank: int
    generation: int
    step: int
    parts: dict[str, str]
    """Name of a tensor or another part of the state → its digest."""


@dataclass(frozen=True)
class FaultDue:
    """A planned fault is due; wait for `FaultGranted` before injecting it."""

    index: int
    do: str


@dataclass(frozen=True)
class Failed:
    """The training function raised; the rank exits next."""

    rank: int
    generation: int
    error: RankError
    collectives: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """If a collective raised: the collectives that the rank entered last (`workers/rank/flight_recorder.py`)."""


@dataclass(frozen=True)
class Done:
    """The training function returned on this rank."""

    rank: int
    generation: int
    step: int
    stopped: bool
    """The rank ended at an agreed step because of `Stop`, not because the job is complete."""
    result: dict[str, Any] = field(default_factory=dict[str, Any])
    """From the leading rank: `parameters` and `samples` digests, parameter count."""


# ---------------------------------------------------------------- agent -> supervisor


@dataclass(frozen=True)
class Exited:
    """A rank (or the store, `rank` -1; or the zygote, `rank` -2) is gone. `code` is negative for a signal."""

    rank: int
    generation: int
    code: int
    time_s: float
    out_of_memory: bool = False
    """The kernel killed a process on this node because memory was exhausted."""
    last_output: str = ""
    """If the rank crashed: the end of its standard error, with the cause that libraries print and Python's stacks."""
    terminated: bool = False
    """The rank got SIGTERM at a planned end before it exited."""
    failed_holders: tuple[str, ...] = ()
    """Nodes that had state for the ranks of this node and did not deliver it."""


@dataclass(frozen=True)
class Note:
    """Something a person may want to read: data preparation progress, a rejected stale message."""

    generation: int
    kind: str
    data: dict[str, Any]
    time_s: float


@dataclass(frozen=True)
class AgentReport:
    """Report that an agent sends to its supervisor: at once for news, and otherwise as often as the supervisor asks."""

    node_id: str
    boot_id: str
    """Names this life of the agent."""
    generation: int
    """Highest generation the agent has seen."""
    running: tuple[int, ...]
    """Ranks alive now."""
    messages: tuple[tuple[int, dict[str, Any]], ...]
    """(sequence number, encoded message), resent until acknowledged."""
    activity: ActivityReport | None = None
    """Places and activity of the ranks; None in a proof of their death."""
    supervisor_run: str = ""
    """Names the supervisor's life that has taken what came before this report; empty: nothing came before."""
    restore: StorageProgress | None = None
    """Progress of the restore from a checkpoint on this node; None: there is none, or it has not changed."""
    save: SaveProgress | None = None
    """Progress of the newest save on this node; None: there is none, or it has not changed."""


Message = (
    AgentConfig
    | Join
    | Stop
    | MirrorDue
    | Begin
    | Buffers
    | FaultGranted
    | Prepared
    | Joined
    | BuffersRequest
    | StateCatalogRequest
    | StateRequest
    | SourceReleaseRequest
    | StateReply
    | Restored
    | StepRow
    | Report
    | Pinned
    | StateDigest
    | FaultDue
    | Failed
    | Done
    | Exited
    | Note
    | AgentReport
)
_TYPES: Mapping[str, type[Any]] = {cls.__name__: cls for cls in get_args(Message)}


def encode(message: Message) -> bytes:
    """JSON bytes of a message."""
    return json.dumps(to_json(message), separators=(",", ":")).encode()


def decode(data: bytes) -> Message:
    """Return the message in `data`.

    Raises:
        ContractError: another contract version, or an unknown type.
    """
    return from_json(json.loads(data))


def to_json(message: Message) -> dict[str, Any]:
    """Return a message as plain data, with its type and version."""
    return {"type": type(message).__name__, "v": CONTRACT_VERSION, **plain(message)}


def from_json(data: Mapping[str, Any]) -> Message:
    """Return the message in plain data.

    Raises:
        ContractError: another contract version, or an unknown type.
    """
    check_version(data)
    cls = _TYPES.get(str(data.get("type")))
    if cls is None:
        raise ContractError(f"unknown message type {data.get('type')!r}")
    return build(cls, data)


def check_version(data: Mapping[str, Any]) -> None:
    """Check that plain data is a message of this contract's version.

    Raises:
        ContractError: it is of another version.
    """
    if data.get("v") != CONTRACT_VERSION:
        raise ContractError(f"message of contract version {data.get('v')!r}; this side speaks {CONTRACT_VERSION}")
