"""The server of regroup with supervisors behind a socket: `regroup serve` in all but the connection to Ray.

    python -m benchmarks.control_plane.controller_process SOCKET JOBS PASSES

Settings come from the environment, as for `regroup serve`. PASSES receives the seconds of each pass of the controller,
one a line.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.control_plane.frames import CallFailedError, Peer
from benchmarks.control_plane.running_jobs import cluster_nodes, running_jobs
from regroup.api.serve import serve
from regroup.service.domain.topology import Node
from regroup.service.ports.cluster import (
    Cluster,
    ClusterUnavailableError,
    agent_name,
    job_id_of,
    reservation_name,
    supervisor_name,
)
from regroup.service.ports.sync import SyncReply, SyncRequest
from regroup.service.server import control_plane
from regroup.service.settings import Settings
from regroup.service.store.store import Store
from regroup.service.tasks.pass_record import PassRecord

_SYNC_GRACE_S = 10.0
"""As in `RayCluster`."""


class SocketCluster:
    """The calls of `Cluster` for jobs that run and do not end. A sync is encoded as for Ray (`RayCluster`)."""

    def __init__(self, peer: Peer, jobs: int) -> None:
        """Initialize the cluster on which `jobs` jobs run."""
        self._peer, self._jobs = peer, jobs
        running = running_jobs(jobs)
        self._actors = {supervisor_name(job.id) for job in running}
        self._actors |= {agent_name(job.id, node.id) for job in running for node in job.nodes}
        self._reservations = {reservation_name(job.id, node.id, 1) for job in running for node in job.nodes}
        self._recorded = {job.id for job in running}

    async def sync(self, job_id: str, request: SyncRequest) -> SyncReply:
        """Send intents and receive events.

        Raises:
            ClusterUnavailableError: the supervisor does not answer in time.
        """
        try:
            async with asyncio.timeout(request.wait_s + _SYNC_GRACE_S):
                return SyncReply.from_json(await self._peer.call("sync", (job_id, request.to_json())))
        except (TimeoutError, CallFailedError) as error:
            raise ClusterUnavailableError(f"the supervisor of job {job_id} did not answer: {error}") from error

    async def nodes(self) -> Sequence[Node]:
        """Return the nodes. Each call makes them again, as from the answer of Ray."""
        return cluster_nodes(self._jobs)

    async def unreachable(self) -> Mapping[str, str]:
        """Return no cluster: all answer."""
        return {}

    async def lost_nodes(self) -> Sequence[str]:
        """Return no node."""
        return []

    async def actors(self, job_id: str = "") -> set[str]:
        """Return the supervisors and agents."""
        return _of_job(self._actors, job_id)

    async def reservations(self, job_id: str = "") -> set[str]:
        """Return the reservations."""
        return _of_job(self._reservations, job_id)

    async def recorded_jobs(self) -> set[str]:
        """Return the jobs with generation records."""
        return set(self._recorded)

    async def request_nodes(self, bundles: Sequence[Any]) -> None:
        """Do nothing: no node can be added."""

    async def dashboard_url(self) -> str | None:
        """Return no address."""
        return None


def _of_job(names: set[str], job_id: str) -> set[str]:
    return {name for name in names if job_id_of(name) == job_id} if job_id else set(names)


def record_passes(path: Path) -> None:
    """Append the duration of each completed pass to a file."""
    file, complete = path.open("a", buffering=1), PassRecord.complete

    def recorded(self: PassRecord) -> None:
        complete(self)
        file.write(f"{self.duration_s}\n")

    PassRecord.complete = recorded


def main(socket: str, jobs: int, passes: Path) -> None:
    """Serve until SIGTERM."""

    async def connect(_settings: Settings, _store: Store) -> Cluster:
        async def refuse(kind: str, _value: Any) -> Any:
            raise CallFailedError(f"supervisors do not call {kind}")

        _, peer = await asyncio.get_running_loop().create_unix_connection(lambda: Peer(refuse), socket)
        cluster: Any = SocketCluster(peer, jobs)
        return cluster

    record_passes(passes)
    control_plane.connect_clusters = connect
    serve(Settings())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
