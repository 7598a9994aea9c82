"""The methods of an agent, as the supervisor and the control plane call them.

`NodeAgent` implements them on a node; callers get an `AgentApi` from their adapter. `agent_wire` encodes the calls.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from regroup.workers.contract.agent_records import (
    AgentFailure,
    AgentStatus,
    CheckpointScan,
    CommandOutput,
    CommandRequest,
    CommandStarted,
    Dataset,
    DataSources,
    DeathProof,
    LogPiece,
    Manifest,
    MirrorSent,
    NodeDescription,
    PreflightReport,
    PreflightRequest,
    RankInspection,
    RankStack,
    SavedShards,
    SourceListing,
    StoreAddress,
    TransferAddress,
)
from regroup.workers.contract.held_sets import HeldSet
from regroup.workers.contract.rank_starts import RankStarts
from regroup.workers.contract.start_messages import Restore


class AgentFailedError(Exception):
    """An agent failed for a reason that a person can act on."""

    def __init__(self, failure: AgentFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class AgentApi(Protocol):
    """One job's agent on one node. A method raises what its caller's adapter makes of an `AgentFailure`."""

    # ------------------------------------------------------------ starting

    async def receive_secrets(self, version: str, values: dict[str, str]) -> None:
        """Receive the values of the project's secrets that the job uses. They replace those before.

        Args:
            version: name of these values, which `status` returns.
            values: secret → value.
        """
        ...

    async def install_environment(self) -> None:
        """Install the packages that the job's Python needs, which may take long.

        Errors: `environment`, `secret`, `start`, `node`.
        """
        ...

    async def start_zygote(self) -> NodeDescription:
        """Start the zygote, or wait until it is ready.

        Errors: `code`, `preload`, `secret`, `environment`, `start`, `node`.
        """
        ...

    async def run_preflight(self, request: PreflightRequest) -> PreflightReport:
        """Check this node before ranks start on it.

        Errors: `other`.
        """
        ...

    async def check_storage(self, nonce: str) -> bool:
        """Check that this node can write to durable storage, and return whether it sees the proof with this name.

        Errors: `storage`, `storage_unavailable`.
        """
        ...

    async def write_storage_proof(self, nonce: str) -> None:
        """Write the file by which other nodes prove that they share durable storage with this one.

        Errors: `storage`, `storage_unavailable`.
        """
        ...

    # ------------------------------------------------------------ data

    async def list_sources(self, sources: DataSources) -> SourceListing:
        """List the job's data as this node sees it.

        Errors: `data`.
        """
        ...

    async def prepare_data(self, sources: DataSources) -> Dataset:
        """Make token files or records of the sources, once.

        Errors: `data`, `storage`.
        """
        ...

    async def fetch_data(self, prepared: Dataset) -> Dataset:
        """Make prepared data readable on this node; returns it with its paths here.

        Errors: `data`, `storage`.
        """
        ...

    # ------------------------------------------------------------ generations

    async def start_store(self, generation: int, is_next: bool) -> StoreAddress:
        """Start the generation's rendezvous store. `is_next`: the present generation still trains.

        Errors: `stale`.
        """
        ...

    async def form_ranks(self, common: bytes, starts: RankStarts, holders: bytes) -> None:
        """Fork the generation's ranks on this node.

        Errors: `storage` (the checkpoint), `transfer` (the other node), `stale`, `start`, `node`.

        Args:
            common: a `Join` with what all ranks of the generation share, as `messages.encode` writes it.
            starts: the ranks of this node.
            holders: the agents that hold the state in memory, each with the ranks that wrote its shards, as
                `rank_starts.encode_holders` writes them: all agents, this one included, if other ranks wrote the
                state, otherwise those of the ranks of this node whose shard is elsewhere.
        """
        ...

    async def prepare_ranks(self, common: bytes, starts: RankStarts) -> None:
        """Fork the ranks of the next generation while this one trains. They form their groups and wait for their state.

        They replace ranks that were prepared before, and change nothing for the present generation.

        Errors: `stale`, `start`, `node`, and `no_memory` where the node lacks memory for both generations.

        Args:
            common: as of `form_ranks`, with the source `later`.
            starts: the ranks of this node.
        """
        ...

    async def begin_ranks(self, generation: int, restore: Restore, holders: bytes) -> None:
        """Let the prepared ranks of a generation restore their state and train. The ranks before them are dead.

        Errors: as of `form_ranks`, and `other` if one of them is dead or was not prepared.
        """
        ...

    async def discard_ranks(self, generation: int) -> None:
        """Kill the ranks prepared for generations up to this one, with their store. The running ranks train on."""
        ...

    async def stop_ranks(self, generation: int, reason: str, save: bool) -> None:
        """Ask the ranks to end at a step that they agree on. With `save` they hold that step for a checkpoint.

        Errors: `stale`.
        """
        ...

    async def terminate_ranks(self, generation: int) -> None:
        """Send SIGTERM to the ranks of a generation, once. Their later exits are planned and their errors are not
        reported.

        Errors: `stale`.
        """
        ...

    async def kill_ranks(self, generation: int, for_restore: bool) -> DeathProof:
        """Kill the ranks of every generation up to this one, with proof. Ranks prepared for a later one live.

        `for_restore`: another generation restores the state. The proof lists the sets in this node's memory, as
        `list_shards` does. The newest one is verified first, as far as that takes a short time.
        """
        ...

    # ------------------------------------------------------------ snapshots

    async def list_shards(self) -> list[HeldSet]:
        """List the complete shards of training state in this node's memory, of its own ranks and mirrored ones. Their
        data is not read."""
        ...

    async def verify_shards(self, generation: int, step: int) -> list[HeldSet]:
        """Read this node's shards of a set and return those whose checksum is right, as a verified set. A damaged one
        is not listed from then on."""
        ...

    async def release_restore_source(self, has_mirrors: bool) -> None:
        """Release the shards that the running ranks were restored from: they have a whole set of their own. Without
        mirrors in the job, release also what is mirrored here."""
        ...

    async def transfer_address(self) -> TransferAddress:
        """Return where other agents of the job send and fetch shards; listen there from now on.

        Errors: `other`.
        """
        ...

    async def request_mirror(self, generation: int) -> None:
        """Have the leading rank, which is on this node, make all ranks hold the next set for mirrors.

        Errors: `stale`.
        """
        ...

    async def send_mirror(
        self, generation: int, step: int, ranks: Sequence[int], to: TransferAddress, bytes_per_s: float | None
    ) -> MirrorSent:
        """Send the shards that ranks hold pinned for mirrors to another agent.

        Errors: `transfer`, and `no_memory` where the other node is short of memory.
        """
        ...

    async def retain_mirror(self, generation: int, step: int) -> None:
        """Retain this set, which all mirrors hold whole; release every other mirrored set."""
        ...

    async def release_mirrors(self, generation: int, step: int) -> None:
        """Release every mirrored set but this one, which is sent next: memory is short."""
        ...

    # ------------------------------------------------------------ checkpoints

    async def save_checkpoint(
        self, generation: int, step: int, ranks: Sequence[int], uri: str, differing: Sequence[str], base: str
    ) -> SavedShards:
        """Write pinned snapshots below `uri`; return when the supervisor has all step rows up to then.

        `differing`: groups of tensors of which each rank has a copy of its own, by the names in `Pinned.copies`.
        `base`: finished checkpoint whose unchanged parts are used instead of being written again; empty: none.

        Errors: `storage`.
        """
        ...

    async def finish_checkpoint(self, uri: str, parts: Sequence[dict[str, Any]], manifest: Manifest) -> Manifest:
        """Write the metadata of a checkpoint and, last, its manifest; returns the manifest as written.

        Errors: `storage`.
        """
        ...

    async def scan_checkpoints(self) -> CheckpointScan:
        """Find the job's checkpoints in durable storage.

        Errors: `storage_unavailable`.
        """
        ...

    async def remove_checkpoint(self, uri: str) -> None:
        """Remove a checkpoint from durable storage, except the files that other checkpoints use.

        Errors: `storage_unavailable`.
        """
        ...

    # ------------------------------------------------------------ state and evidence

    async def status(self) -> AgentStatus:
        """Return the state of this agent."""
        ...

    async def dump_stacks(self) -> dict[int, RankStack]:
        """Return rank → where every thread of it is now."""
        ...

    async def inspect_ranks(self) -> dict[int, RankInspection]:
        """Return rank → where it is and which collectives it entered last; keep that as evidence."""
        ...

    async def upload_evidence(self, generation: int, incident: str) -> int:
        """Upload what is noted of a generation's end; returns bytes, 0 if nothing is noted.

        Errors: `storage`.
        """
        ...

    async def remove_evidence(self, incidents: Sequence[str]) -> None:
        """Remove the evidence of old incidents from durable storage.

        Errors: `storage_unavailable`.
        """
        ...

    async def read_log(self, generation: int, rank: int, stream: str, offset: int, limit: int) -> LogPiece:
        """Read bytes of a rank's `stdout` or `stderr` from `offset`."""
        ...

    # ------------------------------------------------------------ commands and faults

    async def start_command(self, request: CommandRequest) -> CommandStarted:
        """Run a command next to a rank, with the rank's variables and folder.

        Errors: `command`, `other`.
        """
        ...

    async def read_command(self, key: str, limit_bytes: int, wait_s: float) -> CommandOutput:
        """Read what a command wrote since it was last read, and how it ended.

        Errors: `command`.
        """
        ...

    async def kill_command(self, key: str) -> None:
        """Kill a command with every process that it started."""
        ...

    async def inject_fault(self, do: str) -> None:
        """Inject a planned fault on this node."""
        ...

    async def shutdown(self) -> None:
        """End every process of the job here; the caller kills the actor when this returns."""
        ...
