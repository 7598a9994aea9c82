"""The port between the control plane and whatever runs jobs: Ray (`ray_cluster`) or memory (`fake_cluster`).

Every call is bounded in time and raises `ClusterUnavailableError` when the cluster does not answer.
"""

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from regroup.service.domain.errors import RegroupError, UnavailableError
from regroup.service.domain.topology import Node
from regroup.service.policy.scheduling.autoscaler_request import Bundle
from regroup.service.ports.sync import SyncReply, SyncRequest

__all__ = [
    "NAMESPACE",
    "Cluster",
    "ClusterUnavailableError",
    "LogChunk",
    "Node",
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
    """The cluster does not answer; what was asked may or may not have happened."""


class ReservationRefusedError(RegroupError):
    """The node did not give the devices in time; nothing is held."""


class SupervisorGoneError(RegroupError):
    """No supervisor of that name exists any more."""


def supervisor_name(job_id: str) -> str:
    """Name of a job's supervisor actor."""
    return f"regroup-supervisor:{job_id}"


def agent_name(job_id: str, node_id: str) -> str:
    """Name of the actor that runs a job's ranks on one node."""
    return f"regroup-agent:{job_id}:{node_id[:8]}"


def reservation_name(job_id: str, node_id: str, attempt: int) -> str:
    """Name of the reservation that holds devices of one node for the `attempt`-th start of a job."""
    return f"regroup-reservation:{job_id}:{node_id[:8]}:{attempt}"


def job_id_of(name: str) -> str:
    """The job that a supervisor, agent or reservation name belongs to."""
    return name.split(":")[1] if name.startswith("regroup-") and ":" in name else ""


@dataclass(frozen=True)
class Reservation:
    """Devices of one node, held for one job from `create_reservation` to `release_reservation`."""

    name: str
    job_id: str
    node_id: str
    devices: int
    """Ranks that fit in it, one device each."""
    device_kind: str
    """`cpu` or `cuda`."""
    cpus: int
    """Cores of all its ranks together."""
    memory_bytes: int = 0
    """Host memory of all its ranks together; 0 reserves none."""


@dataclass(frozen=True)
class LogChunk:
    """A piece of a rank's output."""

    data: str
    offset: int
    """Byte offset of `data` in the stream."""
    next_offset: int
    """Where to go on reading."""
    complete: bool
    """The rank has ended and nothing follows `next_offset`."""

    @classmethod
    def of(
        cls, data: bytes, offset: int, size: int, *, is_ended: bool, requested_offset: int | None = None
    ) -> "LogChunk":
        """The chunk of these bytes, without a character that is cut at their end while more may follow.

        Args:
            size: bytes that the stream has now.
            is_ended: nothing will be added.
            asked: where the reader wanted to go on; output between there and `offset` is not kept.
        """
        at_end = offset + len(data) >= size
        text, used = codecs.utf_8_decode(data, "replace", is_ended and at_end)
        if not text and data and not at_end:
            text, used = codecs.utf_8_decode(data, "replace", True)  # less than a character was asked for
        if requested_offset is not None and offset > requested_offset:
            text = f"\n[{(offset - requested_offset) / 2**20:.1f} MiB of output are not kept]\n{text}"
        return cls(text, offset, offset + used, is_ended and at_end)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "LogChunk":
        """Read back a chunk that crossed the wire as plain data."""
        return cls(str(data["data"]), int(data["offset"]), int(data["next_offset"]), bool(data["complete"]))


class Cluster(Protocol):
    """Where jobs run."""

    async def nodes(self) -> Sequence[Node]:
        """Every node that is alive, with what is free on it now."""
        ...

    async def request_nodes(self, bundles: Sequence[Bundle]) -> None:
        """Ask whoever adds nodes that the cluster hold all of these at once, in place of what was asked before."""
        ...

    async def prestart(self, node: Node) -> None:
        """Leave one more idle process on a node that is ready to become a supervisor or an agent."""
        ...

    async def stand_by(self, node: Node, ifname: str, *, preflight: bool) -> str:
        """See to it that an agent in waiting is on a node; to be said again every few minutes, or it ends.

        Args:
            preflight: it is to check its node meanwhile.

        Returns:
            What it has found wrong with the node; empty if nothing so far.
        """
        ...

    async def is_clear(self, node: Node, job_id: str) -> bool:
        """An agent in waiting on a node says that nothing of a job lives there; False where none is or answers."""
        ...

    async def create_reservation(self, reservation: Reservation) -> Sequence[int]:
        """Hold devices; the same reservation again is the same hold.

        Returns:
            Indexes of the CUDA devices held; none for `cpu`.

        Raises:
            ReservationRefusedError: the node is gone or full; nothing is held.
        """
        ...

    async def release_reservation(self, name: str) -> None:
        """Give devices back; a reservation that is not held is no error."""
        ...

    async def reservations(self) -> set[str]:
        """Names of all reservations held."""
        ...

    async def actors(self) -> set[str]:
        """Names of all supervisors and agents that exist."""
        ...

    async def start_supervisor(self, name: str, payload: Mapping[str, Any]) -> None:
        """Start the supervisor actor, or find it there already."""
        ...

    async def start_agents(self, payload: Mapping[str, Any]) -> None:
        """Let the agents of a job come up at the same time as the supervisor that will look for them."""
        ...

    async def sync(self, job_id: str, request: SyncRequest) -> SyncReply:
        """Exchange intents for events; returns at once when there are any, else within `wait_s`.

        Raises:
            SupervisorGoneError: there is no such supervisor.
        """
        ...

    async def stop_supervisor(self, name: str) -> None:
        """Tell a supervisor to end its agents and itself; one that does not is killed. A missing one is no error."""
        ...

    async def kill_actor(self, name: str) -> None:
        """End a supervisor or agent by force, for good. A missing one is no error."""
        ...

    async def forget_job(self, job_id: str) -> None:
        """Delete a dead job's generation and fault records."""
        ...

    async def read_log(self, job_id: str, generation: int, rank: int, stream: str, offset: int, limit: int) -> LogChunk:
        """Up to `limit` bytes of a rank's `stdout` or `stderr`.

        Raises:
            NotFoundError: no such rank, or its log is gone with its node.
        """
        ...

    async def stacks(self, job_id: str) -> Mapping[str, Mapping[str, Any]]:
        """Rank → `node`, `pid`, `place` (step and phase) and `text`: where every thread of it is now.

        Raises:
            NotFoundError: the job has no ranks now.
        """
        ...

    async def execute(self, job_id: str, node_id: str, order: Mapping[str, Any]) -> int:
        """Run a command in the place of a rank on its node; returns the generation whose rank it was.

        Args:
            order: `key` (to name it by from now on), `rank`, `command`, `timeout_s` and `stdin`.

        Raises:
            ConflictError: the agent does not run it, and says why.
        """
        ...

    async def execution(
        self, job_id: str, node_id: str, key: str, limit_bytes: int, wait_s: float
    ) -> tuple[Sequence[tuple[str, bytes]], Mapping[str, Any] | None]:
        """What a command wrote since it was last asked for, as (stream, bytes), and how it ended: `code` and `why`.
        One that nobody asks for is ended; with a limit of 0 it is only kept.

        Raises:
            ConflictError: there is no such command.
        """
        ...

    async def end_execution(self, job_id: str, node_id: str, key: str) -> None:
        """End a command with all that it started; a missing one is no error."""
        ...

    async def dashboard_url(self) -> str | None:
        """The Ray dashboard, if there is one."""
        ...
