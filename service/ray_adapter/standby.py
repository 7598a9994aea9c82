"""Standby agents, one per node with free capacity, and the records of the jobs that use them.

A standby has its first actor name forever, so a record maps the name of an agent to its standby:
`standby/<agent name>/<standby name>`. It is written before the call to the standby. The standby itself decides which
job gets it. The process that wrote a record may die before the call, so `resume` repeats it.
"""

# pyright: reportPrivateUsage=false
# The key-value store has no public face in Ray 2.60.

from functools import cache
from typing import Any, TypeVar
from uuid import uuid4

import ray
import structlog
from ray.exceptions import GetTimeoutError, RayError
from ray.experimental import internal_kv

from regroup.service.ports.actor_names import name_of, node_of_standby, shown_standby_name
from regroup.service.ports.cluster import NAMESPACE, agent_name
from regroup.service.ray_adapter.actor_lookup import shown_names
from regroup.workers.agent.standby import StandbyAgentActor
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.messages import to_json

_KV = NAMESPACE.encode()
_ADOPT_S = 5.0
_log = structlog.get_logger(__name__)
T = TypeVar("T")


def ensure(config: AgentConfig) -> str:
    """Ensure that a node has a free standby, and extend its wait. Return the faults that it has found so far.

    Return before the standby is ready. Blocking.
    """
    for name in _free(config.node_id):
        handle = _actor(name)
        if handle is not None:
            handle.prewarm.remote()
            return _answer_of(handle.describe_faults.remote(), "") if config.preflight else ""
    _create(config).prewarm.remote()
    return ""


def is_clear(node_id: str, job_id: str) -> bool:
    """Return whether a free standby of the node reports that no process of a job lives there. Blocking."""
    handles = [handle for name in _free(node_id) if (handle := _actor(name)) is not None]
    return any(_answer_of(handle.is_clear.remote(job_id), False) for handle in handles)


def claim(agent: str, config: AgentConfig) -> Any | None:
    """Make a free standby of the node the job's agent. Return its handle, or None if there is no standby. Blocking."""
    for name in _free(config.node_id):
        handle = _actor(name)
        if handle is None:
            continue
        record = _record(agent, name)
        internal_kv._internal_kv_put(record, b"", namespace=_KV)
        try:
            if ray.get(handle.adopt.remote(to_json(config)), timeout=_ADOPT_S):
                return handle
        except (RayError, GetTimeoutError) as error:
            _log.info("a standby did not answer", standby=name, error=str(error))
            ray.kill(handle)
        internal_kv._internal_kv_del(record, namespace=_KV)
    return None


def resume(agent: str, config: AgentConfig) -> Any | None:
    """Return the live standby that a record gives to this agent, after it has become the agent. Blocking."""
    for _, name in _records(f"standby/{agent}/"):
        handle = _actor(name)
        # A standby that does not answer is the agent, if it is alive: only a standby of another job says no.
        if handle is not None and _answer_of(handle.adopt.remote(to_json(config)), True):
            return handle
        internal_kv._internal_kv_del(_record(agent, name), namespace=_KV)
    return None


def find(agent: str) -> Any | None:
    """Return the live standby that became this agent, if any. Blocking."""
    for _, name in _records(f"standby/{agent}/"):
        handle = _actor(name)
        if handle is not None:
            return handle
    return None


def forget(job_id: str) -> None:
    """Delete the records of the agents of a job that has ended. Blocking."""
    prefix = f"standby/{agent_name(job_id, '')}"
    internal_kv._internal_kv_del(prefix.encode(), del_by_prefix=True, namespace=_KV)


def actors() -> set[str]:
    """Return the names of all live supervisors and agents; a standby has the name of the agent it became. Blocking."""
    named = shown_names()
    became = {agent for agent, standby in _records("standby/") if standby in named}
    return became | {name for shown in named if (name := name_of(shown))}


def _answer_of(answer: Any, otherwise: T) -> T:
    try:
        return ray.get(answer, timeout=_ADOPT_S)
    except (RayError, GetTimeoutError) as error:
        _log.info("a standby did not answer", error=str(error))
        return otherwise


def _free(node_id: str) -> list[str]:
    """Return the names of the node's standbys that no record mentions."""
    taken = {standby for _, standby in _records("standby/")}
    return sorted(name for name in shown_names() if node_of_standby(name) == node_id[:8] and name not in taken)


def _records(prefix: str) -> list[tuple[str, str]]:
    keys = internal_kv._internal_kv_list(prefix.encode(), namespace=_KV)
    return [(agent, standby) for _, agent, standby in (key.decode().split("/") for key in keys)]


def _record(agent: str, standby: str) -> bytes:
    return f"standby/{agent}/{standby}".encode()


def _actor(name: str) -> Any | None:
    try:
        return ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        return None


@cache
def _actor_class() -> Any:
    """Return the class of the actors. GCS and each process that uses a class keep it: one per job would be a leak."""
    return ray.remote(StandbyAgentActor)


def _create(config: AgentConfig) -> Any:
    actor = _actor_class().options(
        name=shown_standby_name(config.node_id, config.node_name, uuid4().hex[:8]),
        namespace=NAMESPACE,
        lifetime="detached",
        num_cpus=0,
        num_gpus=0,
        max_restarts=0,
        max_task_retries=0,
        enable_task_events=False,  # GCS would keep a record of every call
        label_selector={"ray.io/node-id": config.node_id},
    )
    return actor.remote(to_json(config))
