"""The port between the control plane and the system that runs jobs: Ray, or an in-memory cluster for tests.

Every call is bounded in time and raises `ClusterUnavailableError` when the cluster does not answer.
"""

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from regroup.service.domain.errors import RegroupError, UnavailableError
from regroup.service.domain.topology import Node
from regroup.service.policy.scheduling.autoscaler_request import Bundle
from regroup.service.ports.start_config import StartConfig
from regroup.service.ports.sync import SyncReply, SyncRequest
from regroup.workers.contract.agent_records import CommandOutput, CommandRequest, RankStack

__all__ = [
    "NAMESPACE",
    "Cluster",
    "ClusterUnavailableError",
    "CommandOutput",
    "CommandRequest",
    "LogChunk",
    "Node",
    "RankStack",
    "Reservation",
    "ReservationRefusedError",
    "SupervisorGoneError",
    "agent_name",
    "job_id_of",
    "reservation_name",
    "supervisor_name",
]  # fmt: skip

NAMESPACE = "regroup"
"""Ray namespace of every actor, and of the generation records."""


class ClusterUnavailableError(UnavailableError):
    """The cluster does not answer. The requested operation may or may not have happened."""


class ReservationRefusedError(RegroupError):
    """The node did not reserve the devices in time. Nothing is reserved."""


class SupervisorGoneError(RegroupError):
    """No supervisor of that name exists."""


def supervisor_name(job_id: str) -> str:
    """Return the name of a job's supervisor actor."""
    return f"regroup-supervisor:{job_id}"


def agent_name(job_id: str, node_id: str) -> str:
    """Return the name of the actor that runs a job's ranks on one node."""
    return f"regroup-agent:{job_id}:{node_id[:8]}"


def reservation_name(job_id: str, node_id: str, attempt: int) -> str:
    """Return the name of the reservation of devices on one node for start number `attempt` of a job."""
    return f"regroup-reservation:{job_id}:{node_id[:8]}:{attempt}"


def job_id_of(name: str) -> str:
    """Return the job of a supervisor, agent or reservation name; empty if the name has another form."""
    return name.split(":")[1] if name.startswith("regroup-") and ":" in name else ""


@dataclass(frozen=True)
class Reservation:
    """Devices of one node that are reserved for one job, from `create_reservation` to `release_reservation`."""

    name: str
    job_id: str
    node_id: str
    devices: int
    """Number of ranks, one device each."""
    device_kind: str
    """`cpu` or `cuda`."""
    cpus: int
    """Cores of all ranks in total."""
    memory_bytes: int = 0
    """Host memory of all ranks in total; 0 reserves none."""


@dataclass(frozen=True)
class LogChunk:
    """A part of a rank's output."""

    data: str
    offset: int
    """Byte offset of `data` in the stream."""
    next_offset: int
    """Byte offset of the next chunk."""
    complete: bool
    """The rank has ended and nothing follows `next_offset`."""
    size: int = field(default=0, compare=False)
    """Bytes that the stream has now; 0 from a server of an earlier version."""

    @classmethod
    def of(
        cls, data: bytes, offset: int, size: int, *, is_ended: bool, requested_offset: int | None = None
    ) -> "LogChunk":
        """Return the chunk of these bytes. An incomplete character at the end is left for the next chunk.

        Args:
            data: Bytes of the stream from `offset` on.
            offset: Byte offset of `data` in the stream.
            size: Current size of the stream in bytes.
            is_ended: True if nothing more will be written.
            requested_offset: Byte offset that the reader requested. The output from there to `offset` was dropped.
        """
        at_end = offset + len(data) >= size
        text, used = codecs.utf_8_decode(data, "replace", is_ended and at_end)
        if not text and data and not at_end:
            text, used = codecs.utf_8_decode(data, "replace", True)  # the limit is smaller than one character
        if requested_offset is not None and offset > requested_offset:
            text = f"\n[{(offset - requested_offset) / 2**20:.1f} MiB of output are not kept]\n{text}"
        return cls(text, offset, offset + used, is_ended and at_end, size)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "LogChunk":
        """Decode a chunk from plain data."""
        return cls(
            str(data["data"]), int(data["offset"]), int(data["next_offset"]), bool(data["complete"]),
            int(data.get("size", 0)),
        )  # fmt: skip


class Cluster(Protocol):
    """The system that runs jobs."""

    async def nodes(self) -> Sequence[Node]:
        """Return every live node, with its free resources.

        Of several clusters, the nodes of one that does not answer are closed, with the resources that it reported last.
        """
        ...

    async def unreachable(self) -> Mapping[str, str]:
        """Return the clusters that do not answer while others do, with the reason. Empty for a single cluster, whose
        calls fail instead."""
        ...

    async def lost_nodes(self) -> Sequence[str]:
        """Return the names of nodes that ended unexpectedly and have not returned."""
        ...

    async def request_nodes(self, bundles: Sequence[Bundle]) -> None:
        """Request that the cluster has capacity for all these bundles at once. Replaces the former request."""
        ...

    async def prestart(self, node: Node) -> None:
        """Start one more idle process on a node, which can become a supervisor or an agent."""
        ...

    async def stand_by(self, node: Node, ifname: str, *, preflight: bool, rank_users: str = "") -> str:
        """Ensure that a standby agent runs on a node. The agent ends unless the call is repeated every few minutes.

        Args:
            node: Node of the agent.
            ifname: Network interface of the node.
            preflight: True if the agent must check its node while it waits.
            rank_users: range of user ids for the processes of jobs; the user of the agent if empty.

        Returns:
            The problem that the agent found on the node; empty if it found none so far.
        """
        ...

    async def is_clear(self, node: Node, job_id: str) -> bool:
        """Return True if a standby agent confirms that no process of a job runs on a node; False if none answers."""
        ...

    async def create_reservation(self, reservation: Reservation) -> Sequence[int]:
        """Reserve devices. The call is idempotent.

        Returns:
            Indexes of the reserved CUDA devices; none for `cpu`.

        Raises:
            ReservationRefusedError: the node is gone or full. Nothing is reserved.
        """
        ...

    async def release_reservation(self, name: str) -> None:
        """Release a reservation. A missing one is not an error."""
        ...

    async def reservations(self, job_id: str = "") -> set[str]:
        """Return the names of all reservations, or of those of one job.

        Without a job, clusters that do not answer are left out while others answer.
        """
        ...

    async def actors(self, job_id: str = "") -> set[str]:
        """Return the names of all existing supervisors and agents, or of those of one job, as `reservations`."""
        ...

    async def start_supervisor(self, name: str, config: StartConfig) -> None:
        """Start the supervisor actor unless it exists."""
        ...

    async def start_agents(self, config: StartConfig) -> None:
        """Start the agents of a job at the same time as their supervisor, which then finds them by name."""
        ...

    async def sync(self, job_id: str, request: SyncRequest) -> SyncReply:
        """Send intents and receive events. Returns at once if there are events, otherwise within `wait_s`.

        Raises:
            SupervisorGoneError: the job has no supervisor.
        """
        ...

    async def stop_supervisor(self, name: str) -> None:
        """Stop a supervisor and its agents. Kills a supervisor that does not stop. A missing one is not an error."""
        ...

    async def kill_actor(self, name: str) -> None:
        """Kill a supervisor or agent without a restart. A missing one is not an error."""
        ...

    async def recorded_jobs(self) -> set[str]:
        """Return the ids of the jobs with generation records, of several clusters as `reservations`."""
        ...

    async def forget_job(self, job_id: str) -> None:
        """Delete the generation and fault records of a finished job."""
        ...

    async def read_log(self, job_id: str, generation: int, rank: int, stream: str, offset: int, limit: int) -> LogChunk:
        """Return up to `limit` bytes of a rank's `stdout` or `stderr`.

        Raises:
            NotFoundError: the rank does not exist, or its log was lost with its node.
        """
        ...

    async def stacks(self, job_id: str) -> Mapping[int, RankStack]:
        """Return rank → its place and the stacks of all its threads.

        Raises:
            NotFoundError: the job has no ranks.
        """
        ...

    async def execute(self, job_id: str, node_id: str, request: CommandRequest) -> int:
        """Run a command in the environment of a rank on its node, and return the generation of the rank.

        Raises:
            ConflictError: the agent refuses the command; the error has the reason.
        """
        ...

    async def execution(self, job_id: str, node_id: str, key: str, limit_bytes: int, wait_s: float) -> CommandOutput:
        """Return the output of a command since the last call, and its end.

        The agent ends a command whose output no client reads. A limit of 0 keeps the command alive without reading.

        Raises:
            ConflictError: the command does not exist.
        """
        ...

    async def end_execution(self, job_id: str, node_id: str, key: str) -> None:
        """Kill a command and all its child processes. A missing one is not an error."""
        ...

    async def dashboard_url(self) -> str | None:
        """Return the URL of the Ray dashboard, if there is one."""
        ...
