"""Adapter for agents (Ray actors by name) and records (the GCS key-value store)."""

# pyright: reportPrivateUsage=false
# The key-value store has no public face in Ray 2.60.

import asyncio
import contextlib
from collections.abc import Mapping
from functools import cache
from typing import Any

import ray
from ray.exceptions import ActorUnschedulableError, RayActorError, RaySystemError, RayTaskError
from ray.experimental import internal_kv

from regroup.service.ports.actor_names import shown_agent_name
from regroup.service.ports.agents import AgentError, AgentLostError
from regroup.service.ports.cluster import NAMESPACE, agent_name
from regroup.service.ray_adapter import standby
from regroup.service.ray_adapter.actor_lookup import ActorLookup
from regroup.service.ray_adapter.nodes import PLANNED_ENDS
from regroup.service.ray_adapter.task_errors import describe_ray_error, failure_of
from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.workers.agent.agent import NodeAgentActor
from regroup.workers.contract import agent_wire
from regroup.workers.contract.agent_api import AgentApi, AgentFailedError
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.messages import to_json

_KV = NAMESPACE.encode()
_NODES_TIMEOUT_S = 2.0


class RayRecords:
    """Create-only records in the GCS: the process that creates a key owns it."""

    async def create(self, key: str, value: bytes) -> bool:
        """Write a record and return True. Return False if the key exists."""
        put = internal_kv._internal_kv_put
        return not await asyncio.to_thread(put, key.encode(), value, overwrite=False, namespace=_KV)

    async def read(self, prefix: str) -> Mapping[str, bytes]:
        """Return all records below a prefix."""
        return await asyncio.to_thread(_read, prefix)


def _read(prefix: str) -> dict[str, bytes]:
    keys = internal_kv._internal_kv_list(prefix.encode(), namespace=_KV)
    return {key.decode(): internal_kv._internal_kv_get(key, namespace=_KV) for key in keys}


@cache
def _actor_class() -> Any:
    """Return the class of the actors. GCS and each process that uses a class keep it: one per job would be a leak."""
    return ray.remote(NodeAgentActor)


def hasten(payload: JobConfig) -> None:
    """Start the agents of a job before its supervisor does. Zygotes that need secrets wait for them. Blocking."""
    agents, needs_secrets = RayAgents(payload.job_id), bool(payload.spec.project_secrets)
    for config in payload.agent_configs().values():
        agent = agents.create(config)
        if not needs_secrets:
            agent.start_zygote.remote()


class RayAgents:
    """The agents of one job as detached, named actors pinned to their nodes."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._handles: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        """Node id → name, of nodes on which agents were started."""
        self._lookup = ActorLookup()

    async def start(self, config: AgentConfig) -> None:
        """Create an agent on its node, or find the existing one."""
        self._names[config.node_id] = config.node_name
        self._handles[config.node_id] = await asyncio.to_thread(self.create, config)

    def agent(self, node_id: str, *, timeout_s: float) -> AgentApi:
        """Return a node's agent. Each call of it takes up to `timeout_s`."""

        async def send(method: str, arguments: list[Any]) -> Any:
            try:
                return agent_wire.value_of(await self._call(node_id, method, arguments, timeout_s))
            except AgentFailedError as error:
                raise AgentError.of(node_id, error.failure) from error

        return agent_wire.client(send)

    async def _call(self, node_id: str, method: str, arguments: list[Any], timeout_s: float) -> Any:
        try:
            handle = self._handles.get(node_id) or self._find(node_id)
            async with asyncio.timeout(timeout_s):
                return await getattr(handle, method).remote(*arguments)
        except RayTaskError as error:  # first: it is also an instance of the exception that the agent raised
            raise AgentError.of(node_id, failure_of(error, self._name_of(node_id))) from error
        except TimeoutError as error:
            raise AgentLostError(
                node_id, f"agent on node {self._name_of(node_id)} did not answer within {timeout_s:.0f} s"
            ) from error
        except (RayActorError, ActorUnschedulableError, ValueError) as error:  # the node may be lost
            self._handles.pop(node_id, None)
            why = "it has ended" if isinstance(error, ValueError) else describe_ray_error(error)
            raise AgentLostError(node_id, f"agent on node {self._name_of(node_id)} is gone: {why}") from error

    def _name_of(self, node_id: str) -> str:
        return self._names.get(node_id) or node_id[:8]

    async def kill(self, node_id: str) -> None:
        """Kill an agent."""
        try:
            handle = self._handles.pop(node_id, None) or self._find(node_id)
        except ValueError:
            return
        await asyncio.to_thread(ray.kill, handle)

    async def planned_end(self, node_id: str) -> str:
        """Return what Ray recorded about a node that ended by plan: a SIGTERM of its raylet, or a drain."""
        try:
            async with asyncio.timeout(_NODES_TIMEOUT_S):
                nodes = await asyncio.to_thread(ray.nodes)
        except (TimeoutError, RaySystemError):
            return ""
        for node in nodes:
            if node["NodeID"] == node_id and not node["Alive"] and node.get("DeathReason") in PLANNED_ENDS:
                return f"node {node.get('NodeName') or node_id[:8]} has ended: {node.get('DeathReasonMessage')}"
        return ""

    def _find(self, node_id: str) -> Any:
        name = agent_name(self._job_id, node_id)
        handle = standby.find(name) or self._lookup.get(name)
        self._handles[node_id] = handle
        return handle

    def create(self, config: AgentConfig) -> Any:
        """Return the existing agent, the free standby of the node, or a new actor, in this order. Blocking."""
        name = agent_name(self._job_id, config.node_id)
        shown = shown_agent_name(config.job_id, config.job_name, config.node_id, config.node_name)
        self._lookup.learn(name, shown)
        handle = standby.resume(name, config)
        if handle is None:
            with contextlib.suppress(ValueError):
                return self._find(config.node_id)
        return handle or standby.claim(name, config) or self._create(shown, config)

    def _create(self, name: str, config: AgentConfig) -> Any:
        actor = _actor_class().options(
            name=name,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            num_gpus=0,
            max_restarts=0,
            max_task_retries=0,
            enable_task_events=False,  # GCS would keep a record of every call
            label_selector={"ray.io/node-id": config.node_id},
        )
        return actor.remote(to_json(config))
