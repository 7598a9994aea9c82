"""The cluster port on Ray 2.60: reservations, supervisors and inventory.

Nothing here blocks the event loop. Ray's blocking calls run in separate threads, and every call has a time limit.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

import ray
from ray import exceptions
from ray._raylet import (
    AuthenticationTokenLoader,  # pyright: ignore[reportAttributeAccessIssue]
    Config,  # pyright: ignore[reportAttributeAccessIssue]
)
from ray.experimental import internal_kv

from regroup.service.cluster_state.topology import Topology
from regroup.service.domain.errors import ConflictError, NotFoundError
from regroup.service.policy.scheduling.autoscaler_request import Bundle
from regroup.service.ports.actor_names import shown_supervisor_name
from regroup.service.ports.cluster import (
    NAMESPACE,
    ClusterUnavailableError,
    LogChunk,
    Node,
    Reservation,
    SupervisorGoneError,
    agent_name,
    job_id_of,
    supervisor_name,
)
from regroup.service.ports.start_config import StartConfig
from regroup.service.ports.sync import SyncReply, SyncRequest
from regroup.service.ray_adapter import reservations, standby
from regroup.service.ray_adapter.actor_lookup import ActorLookup
from regroup.service.ray_adapter.agents import hasten
from regroup.service.ray_adapter.autoscaler import request_nodes
from regroup.service.ray_adapter.error_messages import slow_down_polls
from regroup.service.ray_adapter.nodes import ROLE_LABEL, list_lost_nodes, list_nodes
from regroup.service.ray_adapter.prestart import prestart_worker
from regroup.service.ray_adapter.ray_calls import RayCalls
from regroup.service.ray_adapter.task_errors import describe_ray_error
from regroup.service.supervisor.job_state.job_config import JobConfig, standby_config
from regroup.workers.contract import agent_wire
from regroup.workers.contract.agent_api import AgentApi, AgentFailedError
from regroup.workers.contract.agent_records import CommandOutput, CommandRequest, RankStack
from regroup.workers.contract.codec import build

_CALL_S = 15.0
_CLOSE_S = 5.0
_MOST_CALLS = 16
_SHUTDOWN_S = 20.0
_SYNC_GRACE_S = 10.0
_LEAVE_S = 10.0
_FIRST_WORD_S = 60.0
_AGENT = agent_name("", "").rstrip(":")
_IDLE_TTL_S = 7 * 24 * 3600
_SUPERVISOR = "regroup.service.ray_adapter.supervisor_actor:SupervisorActor"

T = TypeVar("T")


class RayCluster:
    """Implements `Cluster`. There is one per process because Ray has one connection per process."""

    def __init__(self, dashboard: str | None, supervisor: str = _SUPERVISOR, topology: Topology | None = None) -> None:
        self._topology = topology
        self._dashboard = dashboard
        self._supervisor = supervisor
        self._calls = RayCalls(_MOST_CALLS)
        self._agents: dict[str, Any] = {}
        """Agents that run commands, by name."""
        self._lookup = ActorLookup()

    @classmethod
    async def connect(
        cls,
        address: str,
        dashboard: str | None = None,
        supervisor: str = _SUPERVISOR,
        topology: Topology | None = None,
    ) -> "RayCluster":
        """Join the cluster at `host:port`. The environment must hold its token (`local_ray.ray_environment`).

        Raises:
            ClusterUnavailableError: it does not answer, or refuses the token.
        """
        cluster = cls(dashboard, supervisor, topology)
        await cluster._blocking(lambda: _connect(address), limit_s=60.0)
        await cluster._blocking(lambda: _actor_class(supervisor))  # now, and not when the first job starts
        await cluster._blocking(reservations.adopt)
        return cluster

    async def close(self) -> None:
        """Disconnect from the cluster. Its actors continue to run. A cluster that does not answer is left as it is."""
        with contextlib.suppress(ClusterUnavailableError):
            await self._blocking(ray.shutdown, limit_s=_CLOSE_S)

    # ------------------------------------------------------------ nodes

    async def nodes(self) -> Sequence[Node]:
        topology = self._topology
        return await self._blocking(lambda: topology.located(list_nodes()) if topology else list_nodes())

    async def unreachable(self) -> Mapping[str, str]:
        return {}

    async def lost_nodes(self) -> Sequence[str]:
        return await self._blocking(list_lost_nodes)

    async def request_nodes(self, bundles: Sequence[Bundle]) -> None:
        await self._blocking(lambda: request_nodes(bundles))

    async def prestart(self, node: Node) -> None:
        await self._blocking(lambda: prestart_worker(node.id, _IDLE_TTL_S))

    async def stand_by(self, node: Node, ifname: str, *, preflight: bool, rank_users: str = "") -> str:
        config = standby_config(node, ifname, preflight=preflight, rank_users=rank_users)
        return await self._blocking(lambda: standby.ensure(config))

    async def is_clear(self, node: Node, job_id: str) -> bool:
        return await self._blocking(lambda: standby.is_clear(node.id, job_id))

    # ------------------------------------------------------------ reservations

    async def create_reservation(self, reservation: Reservation) -> Sequence[int]:
        return await self._blocking(lambda: reservations.create(reservation), limit_s=reservations.LONGEST_S)

    async def release_reservation(self, name: str) -> None:
        await self._blocking(lambda: reservations.release(name))

    async def reservations(self, job_id: str = "") -> set[str]:
        return _names_of(job_id, await self._blocking(reservations.names))

    # ------------------------------------------------------------ supervisors

    async def actors(self, job_id: str = "") -> set[str]:
        return _names_of(job_id, await self._blocking(standby.actors))

    async def start_supervisor(self, name: str, config: StartConfig) -> None:
        shown = shown_supervisor_name(job_id_of(name), config.spec.name)
        self._lookup.learn(name, shown)
        await self._blocking(lambda: _start_supervisor(self._supervisor, shown, config.to_json()))

    async def start_agents(self, config: StartConfig) -> None:
        """Create the agents and start the imports of their zygotes. Return without waiting for them."""
        await self._blocking(lambda: hasten(JobConfig.from_json(config.to_json())))

    async def sync(self, job_id: str, request: SyncRequest) -> SyncReply:
        reply = await self._call(
            supervisor_name(job_id), "sync", request.to_json(), limit_s=request.wait_s + _SYNC_GRACE_S
        )
        return SyncReply.from_json(reply)

    async def stop_supervisor(self, name: str) -> None:
        try:
            await self._call(name, "shutdown", limit_s=_SHUTDOWN_S)
        except (SupervisorGoneError, ClusterUnavailableError, exceptions.RayTaskError) as error:
            logging.getLogger(__name__).info("supervisor %s did not shut down by itself: %s", name, error)
        await self.kill_actor(name)

    async def kill_actor(self, name: str) -> None:
        await self._blocking(lambda: _kill(self._lookup, name))
        deadline = asyncio.get_running_loop().time() + _LEAVE_S
        while name in await self.actors():
            if asyncio.get_running_loop().time() > deadline:
                raise ClusterUnavailableError(
                    f"{_describe_actor(name)} is still there {_LEAVE_S:.0f} s after it was killed"
                )
            await asyncio.sleep(0.05)

    async def recorded_jobs(self) -> set[str]:
        return await self._blocking(_recorded_jobs)

    async def forget_job(self, job_id: str) -> None:
        self._agents = {name: handle for name, handle in self._agents.items() if job_id_of(name) != job_id}
        self._lookup.forget_job(job_id)
        await self._blocking(lambda: _forget(job_id))

    async def read_log(self, job_id: str, generation: int, rank: int, stream: str, offset: int, limit: int) -> LogChunk:
        name = supervisor_name(job_id)
        try:
            chunk = await self._call(name, "read_log", generation, rank, stream, offset, limit, limit_s=_CALL_S)
        except SupervisorGoneError as error:
            raise NotFoundError(f"job {job_id} has no supervisor to read its rank logs") from error
        if chunk is None:
            raise NotFoundError(f"no node of job {job_id} has {stream} of rank {rank} in generation {generation}")
        return LogChunk.from_json(chunk)

    async def stacks(self, job_id: str) -> Mapping[int, RankStack]:
        try:
            found = await self._call(supervisor_name(job_id), "stacks", limit_s=2 * _CALL_S)
        except SupervisorGoneError as error:
            raise NotFoundError(f"job {job_id} has no ranks: it has not started, or has ended") from error
        if not found:
            raise NotFoundError(f"job {job_id} has no ranks now")
        return {int(rank): build(RankStack, stack) for rank, stack in found.items()}

    async def execute(self, job_id: str, node_id: str, request: CommandRequest) -> int:
        agent = self._agent(job_id, node_id, _FIRST_WORD_S)  # a zygote that was killed is started again, and imports
        return (await agent.start_command(request)).generation

    async def execution(self, job_id: str, node_id: str, key: str, limit_bytes: int, wait_s: float) -> CommandOutput:
        agent = self._agent(job_id, node_id, wait_s + _SYNC_GRACE_S)
        return await agent.read_command(key, limit_bytes, wait_s)

    async def end_execution(self, job_id: str, node_id: str, key: str) -> None:
        await self._agent(job_id, node_id, _CALL_S).kill_command(key)

    async def dashboard_url(self) -> str | None:
        return self._dashboard

    # ------------------------------------------------------------ how to call Ray

    def _agent(self, job_id: str, node_id: str, limit_s: float) -> AgentApi:
        """Return a job's agent, which is not called through its supervisor: its replies may be long."""
        name = agent_name(job_id, node_id)

        async def send(method: str, arguments: list[Any]) -> Any:
            try:
                return agent_wire.value_of(await self._call(name, method, *arguments, limit_s=limit_s))
            except SupervisorGoneError as error:
                self._agents.pop(name, None)
                raise ClusterUnavailableError(f"the agent of job {job_id} on the node is gone") from error
            except AgentFailedError as error:
                raise ConflictError(error.failure.message) from error

        return agent_wire.client(send)

    async def _call(self, actor: str, method: str, *arguments: Any, limit_s: float) -> Any:
        """Call a method of a named actor."""

        def begin() -> asyncio.Future[Any]:
            try:
                handle = self._handle(actor)
            except ValueError as error:
                raise SupervisorGoneError(f"the cluster has no {_describe_actor(actor)}") from error
            return getattr(handle, method).remote(*arguments).future()

        pending = await self._blocking(begin)
        try:
            async with asyncio.timeout(limit_s):
                return await asyncio.wrap_future(pending)
        except TimeoutError as error:
            raise ClusterUnavailableError(f"{_describe_actor(actor)} did not answer within {limit_s:.0f} s") from error
        except exceptions.ActorDiedError as error:
            raise SupervisorGoneError(f"{_describe_actor(actor)} is gone: {describe_ray_error(error)}") from error
        except exceptions.RayActorError as error:
            raise ClusterUnavailableError(
                f"{_describe_actor(actor)} is restarting: {describe_ray_error(error)}"
            ) from error

    def _handle(self, actor: str) -> Any:
        """Return the handle of an actor by its name. An agent that was a standby has another name. Blocking."""
        if not actor.startswith(_AGENT):
            return self._lookup.get(actor)
        if actor not in self._agents:  # asked for every piece of what a command writes
            self._agents[actor] = standby.find(actor) or self._lookup.get(actor)
        return self._agents[actor]

    async def _blocking(self, function: Callable[[], T], limit_s: float = _CALL_S) -> T:
        return await self._calls.run(function, limit_s)


def _describe_actor(actor: str) -> str:
    """Return an actor for people: its role and job, without the ids of Ray."""
    role = actor.removeprefix("regroup-").partition(":")[0]
    job_id = job_id_of(actor)
    return f"{role} of job {job_id}" if job_id else f"actor {actor}"


def _connect(address: str) -> None:
    # A process whose GCS is gone would abort itself after a minute; the control plane must survive to report it.
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "86400")
    # Ray read the environment at import, possibly before the token was set.
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
    logging.getLogger("ray").setLevel(logging.ERROR)
    ray.init(
        address=address,
        namespace=NAMESPACE,
        log_to_driver=False,
        configure_logging=False,
        logging_level=logging.WARNING,
    )
    slow_down_polls()


@cache
def _actor_class(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return ray.remote(getattr(import_module(module), attribute))


def _start_supervisor(class_name: str, name: str, payload: dict[str, Any]) -> None:
    actor = _actor_class(class_name).options(
        name=name,
        namespace=NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        num_cpus=0,
        max_restarts=-1,
        max_task_retries=0,  # the caller repeats calls that are safe to repeat
        enable_task_events=False,  # GCS would keep a record of every poll and report
        label_selector={ROLE_LABEL: "control"},
        fallback_strategy=[{"label_selector": {}}],
    )
    actor.remote(payload)


def _kill(lookup: ActorLookup, name: str) -> None:
    try:
        ray.kill(standby.find(name) or lookup.get(name), no_restart=True)
    except ValueError:
        return


def _names_of(job_id: str, names: set[str]) -> set[str]:
    """Return the names of one job's objects; all names without a job."""
    return {name for name in names if job_id_of(name) == job_id} if job_id else names


def _recorded_jobs() -> set[str]:
    keys = internal_kv._internal_kv_list(  # pyright: ignore[reportPrivateUsage]
        b"generation/", namespace=NAMESPACE.encode()
    )
    return {key.decode().split("/")[1] for key in keys}


def _forget(job_id: str) -> None:
    standby.forget(job_id)
    for prefix in (f"generation/{job_id}/", f"event/{job_id}/", f"fault/{job_id}/"):
        internal_kv._internal_kv_del(  # pyright: ignore[reportPrivateUsage]
            prefix.encode(), del_by_prefix=True, namespace=NAMESPACE.encode()
        )
