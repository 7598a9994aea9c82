"""Arguments and results of an agent's methods (`agent_api.AgentApi`). Plain values, no torch, no ray."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from regroup.workers.contract.held_sets import HeldSet
from regroup.workers.contract.messages import AgentReport

Dataset = dict[str, Any]
"""Prepared data as JSON: `kind`, `fingerprint` and sizes; after `fetch_data` also the paths on that node."""
Manifest = dict[str, Any]
"""The manifest of a checkpoint as it is stored (JSON): `step`, `generation`, `layout`, `files`, `lineage` and more."""


def storage_proof_name(nonce: str) -> str:
    """Return the name of the file in durable storage by which machines prove that they share it."""
    return f".regroup-shared-{nonce}"


class AgentErrorKind(StrEnum):
    """Kind of an agent's failure."""

    CODE = "code"
    """The node cannot get the job's code."""
    PRELOAD = "preload"
    """A module that the spec preloads raised."""
    SECRET = "secret"
    ENVIRONMENT = "environment"
    """The job's Python is missing, cannot be installed or does not start."""
    DATA = "data"
    STORAGE = "storage"
    """Durable storage refused, or what it holds is missing or damaged."""
    STORAGE_UNAVAILABLE = "storage_unavailable"
    """Durable storage did not answer. Its content may be intact."""
    FILE = "file"
    """A local file is missing or cannot be read."""
    STALE = "stale"
    """The call names an older generation than the agent serves."""
    TRANSFER = "transfer"
    """A shard could not be sent to another node or fetched from it."""
    NO_MEMORY = "no_memory"
    """The other node has no memory for a shard."""
    COMMAND = "command"
    """A command was not started, or does not exist."""
    REPLICAS = "replicas"
    """Ranks hold different values of a part that must be equal."""
    PREFLIGHT = "preflight"
    """The preflight found the node unfit."""
    START = "start"
    """No node can start a process with what the spec gives it."""
    NODE = "node"
    """This node could not start a process or lacks a resource. Another node or a later attempt may help."""
    BUG = "bug"
    """The agent raised an error that it does not classify."""
    OTHER = "other"


@dataclass(frozen=True)
class AgentFailure:
    """An error that a person can act on, as it travels from an agent to its caller."""

    kind: AgentErrorKind
    message: str
    traceback: str = ""
    node_name: str = ""
    failed_holders: tuple[str, ...] = ()
    """Nodes that had state for this node and did not deliver it."""


@dataclass(frozen=True)
class NodeDescription:
    """A node whose zygote is ready, for people."""

    node_id: str
    boot_id: str
    """Names this run of the agent."""
    host: str
    python: str
    cpus: int
    memory_bytes: int
    free_memory_bytes: int
    pid: int
    """Process id of the zygote."""
    import_s: float
    warmup_s: float
    launcher: str
    """`fork` or `exec`: how ranks start."""
    why: str
    """Why ranks do not fork, if they do not."""
    user: int = -1
    """User id of the job's processes; -1 from an agent of an earlier version."""


@dataclass(frozen=True)
class TransferAddress:
    """Address at which an agent accepts and serves shards, and the token that authenticates its peers."""

    host: str
    port: int
    token: str
    node_id: str = ""
    """Node of the agent; empty if it is unknown."""


@dataclass(frozen=True)
class ShardHolder:
    """An agent whose memory has shards of the set that a generation restores."""

    address: TransferAddress
    ranks: tuple[int, ...]
    """Ranks that wrote these shards."""


@dataclass(frozen=True)
class PreflightPeer:
    """Another node of the job that this one must reach."""

    node_id: str
    name: str
    address: TransferAddress


@dataclass(frozen=True)
class PreflightRequest:
    """Requirements of a job's ranks on a node."""

    device: str
    indexes: tuple[int, ...]
    """GPUs to check."""
    memory_bytes: int
    """Memory that the job reserved here; 0: not checked."""
    requested_s: float
    """Unix time by the caller's clock."""
    peers: tuple[PreflightPeer, ...] = ()


@dataclass(frozen=True)
class PreflightReport:
    """Findings of a preflight."""

    failed: tuple[tuple[str, str], ...] = ()
    """Faults that make the node unfit: (`device`, `memory` or `scratch`, message)."""
    unreached: tuple[tuple[str, str], ...] = ()
    """Nodes that this one does not reach: (node id, message)."""
    notes: tuple[str, ...] = ()
    """Remarks for people."""
    seconds: float = 0.0


@dataclass(frozen=True)
class PreparationPlace:
    """Folders and Python of a task that prepares records on a node."""

    scratch: str
    code: str
    """Folder of the job's own code; empty without."""
    python: dict[str, str]
    """The job's Python, as `interpreter.activated` reads it."""


@dataclass(frozen=True)
class TokenSources:
    """Sources of token files, and how to make them."""

    train: list[str]
    """Paths, patterns and URIs of the training data."""
    validation: list[str]
    tokenizer: str
    """`byte`, or the path or URI of a tokenizer."""
    sequence: int | None
    """Tokens of one sample, if the job sets it."""


@dataclass(frozen=True)
class DataSources:
    """The data that a job asks for: either token files or prepared records."""

    tokens: TokenSources | None = None
    recipe: dict[str, Any] | None = None
    """A `Recipe` of `workers/data/prepare`, as JSON."""
    reservations: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """For records: node id → reservation → CPUs that tasks may use there."""
    places: dict[str, PreparationPlace] = field(default_factory=dict[str, PreparationPlace])
    """For records: node id → folders and Python of tasks on that node."""


@dataclass(frozen=True)
class SourceListing:
    """A job's data as one node sees it."""

    files: dict[str, Any]
    """Path or URI → size or fingerprint; equal on all nodes if they see the same data."""
    place: PreparationPlace | None = None


@dataclass(frozen=True)
class StoreAddress:
    """Address of a generation's rendezvous store."""

    host: str
    port: int


@dataclass(frozen=True)
class DeathProof:
    """Proof that the ranks of a generation are dead, with the messages that they sent before."""

    stuck: tuple[int, ...]
    """Pids that outlived SIGKILL: their devices must not be reused."""
    report: AgentReport
    held: tuple[HeldSet, ...] = ()
    """Sets of training state in the memory of the node, if the call requested them."""
    since_s: float = 0.0
    """Seconds that passed since the ranks were dead."""


@dataclass(frozen=True)
class MirrorSent:
    """Bytes sent to a mirror, and the time that took."""

    size_bytes: int
    seconds: float


@dataclass(frozen=True)
class SavedFile:
    """A file of a checkpoint, as its manifest lists it."""

    name: str
    size_bytes: int
    crc32: int


@dataclass(frozen=True)
class SavedShards:
    """One node's part of a checkpoint."""

    files: tuple[SavedFile, ...]
    part: dict[str, Any]
    """These shards in the checkpoint's metadata."""
    write_s: float = 0.0
    """Time for which the node wrote files, without those that exist already."""


@dataclass(frozen=True)
class CheckpointScan:
    """A job's checkpoints in durable storage."""

    finished: tuple[Manifest, ...] = ()
    """Manifests, each with its `uri`."""
    unfinished: tuple[str, ...] = ()
    """URIs of those without a manifest that the scanning node is not writing."""


@dataclass(frozen=True)
class AgentPids:
    """Process ids on a node."""

    agent: int
    zygote: int | None = None
    store: int | None = None
    ranks: dict[int, int | None] = field(default_factory=dict[int, int | None])


@dataclass(frozen=True)
class AgentStatus:
    """State of an agent: for a supervisor that restarted, for people and for tests."""

    generation: int
    """The highest that the agent has seen."""
    running: tuple[int, ...] = ()
    """Ranks that are alive."""
    prepared: int = 0
    """Generation of the prepared ranks; 0: there are none."""
    pids: AgentPids = field(default_factory=lambda: AgentPids(0))
    boot_id: str = ""
    unsent: int = 0
    """Messages that the database does not have yet."""
    stale: int = 0
    """Refused calls of older generations."""
    messages: tuple[dict[str, Any], ...] = ()
    """Encoded messages of the ranks of the running generation."""
    dataset: Dataset = field(default_factory=dict[str, Any])
    snapshot_bytes: int = 0
    mirrored: tuple[int, int] | None = None
    """Generation and step of the set that is retained as mirrored."""
    mirror_bytes: int = 0
    log_dir: str = ""
    is_terminating: bool = False
    """The ranks of the running generation have got SIGTERM."""
    secrets_version: str = ""
    """Name of the values of the project's secrets that the agent has; empty without any."""


@dataclass(frozen=True)
class RankStack:
    """Position of a rank and its stacks."""

    node: str
    pid: int
    place: tuple[int, str] | None
    """Step and phase."""
    text: str
    """The stack of every thread."""


@dataclass(frozen=True)
class RankInspection(RankStack):
    """Position of a rank, its stacks and the collectives that it entered last."""

    collectives: list[dict[str, Any]] | None = None
    """Newest last; None: the rank did not answer."""


@dataclass(frozen=True)
class CommandRequest:
    """A command to run next to a rank."""

    key: str
    """Names the command in later calls."""
    rank: int
    command: tuple[str, ...]
    timeout_s: float | None
    stdin: bytes = b""


@dataclass(frozen=True)
class CommandStarted:
    """A command runs."""

    generation: int
    """Generation of the rank next to which the command runs."""


@dataclass(frozen=True)
class CommandExit:
    """The end of a command."""

    code: int
    """Negative for a signal."""
    why: str
    """`exited`, `timeout`, `ended` or `lost`."""
    stuck: tuple[int, ...] = ()
    """Pids that outlived SIGKILL."""
    message: str = ""


@dataclass(frozen=True)
class CommandOutput:
    """Output of a command since the last read."""

    pieces: tuple[tuple[str, bytes], ...] = ()
    """(stream, bytes), in the order written."""
    ended: CommandExit | None = None


@dataclass(frozen=True)
class LogPiece:
    """Bytes of a rank's output."""

    data: bytes | None
    """None: this node does not have the output."""
    offset: int
    size: int
    """Bytes that the stream has now."""
