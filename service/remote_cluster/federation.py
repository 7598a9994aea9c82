"""Several clusters as one: each call goes to the cluster of its job or node. A cluster that does not answer stops no
other.

Inside the control plane the default cluster has the empty name. So a server that gets a second cluster keeps the names,
the history and the jobs of its first one.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

import structlog

from regroup.service.cluster_state.topology import Topology
from regroup.service.domain.errors import RegroupError
from regroup.service.domain.topology import CLUSTER_MARK, DOMAIN_LEVELS, MACHINE_LABEL
from regroup.service.policy.scheduling.autoscaler_request import Bundle
from regroup.service.ports.cluster import (
    Cluster,
    ClusterUnavailableError,
    CommandOutput,
    CommandRequest,
    LogChunk,
    Node,
    RankStack,
    Reservation,
    job_id_of,
)
from regroup.service.ports.start_config import StartConfig
from regroup.service.ports.sync import SyncReply, SyncRequest

PATIENCE_S = 5.0
"""Time that a reading of all nodes waits for one cluster."""
_T = TypeVar("_T")
_log = structlog.get_logger(__name__)


class Directory(Protocol):
    """Knowledge of the database about clusters."""

    async def cluster_of(self, job_id: str) -> str:
        """Return the cluster of a job; empty for the default one.

        Raises:
            NotFoundError: the job does not exist.
        """
        ...

    async def used_nodes(self) -> Sequence[Node]:
        """Return the nodes that jobs or drains name, without their resources."""
        ...


class Federation:
    """Implements `Cluster` for several clusters."""

    def __init__(
        self,
        clusters: Mapping[str, Cluster],
        directory: Directory,
        topology: Topology | None = None,
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Initialize the federation.

        Args:
            clusters: name → cluster; the default cluster has the empty name.
            directory: clusters of jobs.
            topology: places of nodes.
            patience_s: time that a reading of all nodes waits for one cluster.
        """
        self._members = {name: _Member(name, cluster, patience_s) for name, cluster in clusters.items()}
        self._directory, self._topology = directory, topology

    # ------------------------------------------------------------ all clusters

    async def nodes(self) -> Sequence[Node]:
        """Return the nodes of all clusters. Those of a cluster that does not answer are closed.

        Raises:
            ClusterUnavailableError: no cluster answers.
        """
        members = list(self._members.values())
        await asyncio.gather(*(member.refresh() for member in members))
        if all(member.problem for member in members):
            raise ClusterUnavailableError("; ".join(member.problem for member in members))
        used = await self._directory.used_nodes() if any(member.nodes is None for member in members) else ()
        found = [node for member in members for node in member.current_nodes(used)]
        located = self._topology.located(found) if self._topology else found
        return [_with_own_domains(node) for node in located]

    async def unreachable(self) -> Mapping[str, str]:
        """Return the clusters that do not answer, with the reason."""
        await asyncio.gather(*(member.refresh() for member in self._members.values()))
        return {member.name: member.problem for member in self._members.values() if member.problem}

    async def lost_nodes(self) -> Sequence[str]:
        """Return the lost nodes of the clusters that answer."""
        found = await self._of_answering(lambda cluster: cluster.lost_nodes())
        return [_qualified(name, node) for name, nodes in found.items() for node in nodes]

    async def request_nodes(self, bundles: Sequence[Bundle]) -> None:
        """Request each cluster's part of the bundles."""

        async def request(member: _Member) -> None:
            await member.cluster.request_nodes([each for each in bundles if each.kind.cluster == member.name])

        await self._of_answering_members(request)

    async def reservations(self, job_id: str = "") -> set[str]:
        """Return the reservations of one job, or of all clusters that answer."""
        if job_id:
            return await (await self._of_job(job_id)).reservations(job_id)
        found = await self._of_answering(lambda cluster: cluster.reservations())
        return set[str]().union(*found.values())

    async def actors(self, job_id: str = "") -> set[str]:
        """Return the actors of one job, or of all clusters that answer."""
        if job_id:
            return await (await self._of_job(job_id)).actors(job_id)
        found = await self._of_answering(lambda cluster: cluster.actors())
        return set[str]().union(*found.values())

    async def recorded_jobs(self) -> set[str]:
        """Return the jobs with records in the clusters that answer."""
        found = await self._of_answering(lambda cluster: cluster.recorded_jobs())
        return set[str]().union(*found.values())

    async def dashboard_url(self) -> str | None:
        """Return the URL of the Ray dashboard of the default cluster; None while that cluster does not answer."""
        with contextlib.suppress(RegroupError):
            return await self._member("").cluster.dashboard_url()
        return None

    # ------------------------------------------------------------ the cluster of a node

    async def prestart(self, node: Node) -> None:
        """Start an idle process on a node."""
        await self._member(node.cluster).cluster.prestart(node)

    async def stand_by(self, node: Node, ifname: str, *, preflight: bool, rank_users: str = "") -> str:
        """Ensure a standby agent on a node."""
        cluster = self._member(node.cluster).cluster
        return await cluster.stand_by(node, ifname, preflight=preflight, rank_users=rank_users)

    async def is_clear(self, node: Node, job_id: str) -> bool:
        """Return True if no process of a job runs on a node."""
        return await self._member(node.cluster).cluster.is_clear(node, job_id)

    # ------------------------------------------------------------ the cluster of a job

    async def create_reservation(self, reservation: Reservation) -> Sequence[int]:
        """Reserve devices in the cluster of the job."""
        return await (await self._of_job(reservation.job_id)).create_reservation(reservation)

    async def release_reservation(self, name: str) -> None:
        """Release a reservation."""
        await (await self._of_job(job_id_of(name))).release_reservation(name)

    async def start_supervisor(self, name: str, config: StartConfig) -> None:
        """Start the supervisor in the cluster of its job."""
        await (await self._of_job(config.job_id)).start_supervisor(name, config)

    async def start_agents(self, config: StartConfig) -> None:
        """Start the agents in the cluster of their job."""
        await (await self._of_job(config.job_id)).start_agents(config)

    async def sync(self, job_id: str, request: SyncRequest) -> SyncReply:
        """Poll the supervisor of a job."""
        return await (await self._of_job(job_id)).sync(job_id, request)

    async def stop_supervisor(self, name: str) -> None:
        """Stop a supervisor and its agents."""
        await (await self._of_job(job_id_of(name))).stop_supervisor(name)

    async def kill_actor(self, name: str) -> None:
        """Kill a supervisor or agent."""
        await (await self._of_job(job_id_of(name))).kill_actor(name)

    async def forget_job(self, job_id: str) -> None:
        """Delete the records of a finished job."""
        await (await self._of_job(job_id)).forget_job(job_id)

    async def read_log(self, job_id: str, generation: int, rank: int, stream: str, offset: int, limit: int) -> LogChunk:
        """Return a part of a rank's output."""
        return await (await self._of_job(job_id)).read_log(job_id, generation, rank, stream, offset, limit)

    async def stacks(self, job_id: str) -> Mapping[int, RankStack]:
        """Return the stacks of a job's ranks."""
        return await (await self._of_job(job_id)).stacks(job_id)

    async def execute(self, job_id: str, node_id: str, request: CommandRequest) -> int:
        """Run a command next to a rank."""
        return await (await self._of_job(job_id)).execute(job_id, node_id, request)

    async def execution(self, job_id: str, node_id: str, key: str, limit_bytes: int, wait_s: float) -> CommandOutput:
        """Return the output of a command."""
        return await (await self._of_job(job_id)).execution(job_id, node_id, key, limit_bytes, wait_s)

    async def end_execution(self, job_id: str, node_id: str, key: str) -> None:
        """Kill a command."""
        await (await self._of_job(job_id)).end_execution(job_id, node_id, key)

    # ------------------------------------------------------------ parts

    async def _of_job(self, job_id: str) -> Cluster:
        return self._member(await self._directory.cluster_of(job_id)).cluster

    def _member(self, name: str) -> "_Member":
        if name not in self._members:
            raise ClusterUnavailableError(
                f"cluster {name} is not in the clusters file: add it again, or cancel the jobs that name it"
            )
        return self._members[name]

    async def _of_answering(self, call: Callable[[Cluster], Awaitable[_T]]) -> dict[str, _T]:
        return await self._of_answering_members(lambda member: call(member.cluster))

    async def _of_answering_members(self, call: "Callable[[_Member], Awaitable[_T]]") -> dict[str, _T]:
        """Return name → result of the clusters that answer.

        Raises:
            ClusterUnavailableError: none of them does.
        """
        queried = [member for member in self._members.values() if not member.problem] or [*self._members.values()]
        results = await asyncio.gather(*(call(member) for member in queried), return_exceptions=True)
        found, problems = dict[str, _T](), list[str]()
        for member, result in zip(queried, results, strict=True):
            if isinstance(result, RegroupError):
                problems.append(str(result))
            elif isinstance(result, BaseException):
                raise result
            else:
                found[member.name] = result
        if not found:
            raise ClusterUnavailableError("; ".join(problems))
        return found


class _Member:
    """One cluster of a federation, with the last nodes that it reported."""

    def __init__(self, name: str, cluster: Cluster, patience_s: float) -> None:
        self.name, self.cluster = name, cluster
        self.problem = ""
        """Why it does not answer; empty if it does."""
        self.nodes: Sequence[Node] | None = None
        """Nodes of the last answer; None before the first one."""
        self._patience_s = patience_s
        self._reading: asyncio.Task[Sequence[Node]] | None = None

    async def refresh(self) -> None:
        """Read the nodes. After a cluster did not answer, do not wait for it: its answer is used when it comes."""
        reading = self._reading = self._reading or asyncio.ensure_future(self._read())
        await asyncio.wait({reading}, timeout=0.0 if self.problem and not reading.done() else self._patience_s)
        if not reading.done():
            self._note(self.problem or f"no answer within {self._patience_s:.0f} s")
            return
        if self._reading is reading:
            self._reading = None
        try:
            self.nodes = reading.result()
        except RegroupError as error:  # also a fault of a gateway: it must not stop the other clusters
            self._note(str(error))
        else:
            self._note("")

    def current_nodes(self, used: Sequence[Node]) -> list[Node]:
        """Return the nodes. If the cluster does not answer, they are closed.

        Args:
            used: nodes that the database names, for a cluster that has not answered yet.
        """
        nodes = [node for node in used if node.cluster == self.name] if self.nodes is None else self.nodes
        if not self.problem:
            return [*nodes]
        return [replace(node, closed_reason=f"in a cluster that does not answer: {self.problem}") for node in nodes]

    async def _read(self) -> Sequence[Node]:
        return [_of_cluster(node, self.name) for node in await self.cluster.nodes()]

    def _note(self, problem: str) -> None:
        if bool(problem) != bool(self.problem):
            if problem:
                _log.warning("a cluster does not answer", cluster=self.name or "(default)", reason=problem)
            else:
                _log.info("a cluster answers again", cluster=self.name or "(default)")
        self.problem = problem


def _of_cluster(node: Node, cluster: str) -> Node:
    """Return a node as the control plane names it."""
    if not cluster:
        return node
    labels = dict(node.labels)
    if machine := labels.get(MACHINE_LABEL):
        labels[MACHINE_LABEL] = _qualified(cluster, machine)
    return replace(node, cluster=cluster, name=_qualified(cluster, node.name), labels=labels)


def _with_own_domains(node: Node) -> Node:
    """Return a node with names of domains that no other cluster has."""
    if not node.cluster or not node.domains:
        return node
    assert len(node.domains) == len(DOMAIN_LEVELS), "one name per level"
    return replace(node, domains=tuple(name and _qualified(node.cluster, name) for name in node.domains))


def _qualified(cluster: str, name: str) -> str:
    return f"{cluster}{CLUSTER_MARK}{name}" if cluster else name
