"""Names of actors as Ray and its dashboard show them, with the names of job and node. Pure.

The name of an actor elsewhere (`supervisor_name`, `agent_name`) has only ids. It is the first and the last parts of the
name that Ray shows. A standby exists before its job, so its name has only the node.
"""

from regroup.service.ports.cluster import agent_name, supervisor_name

STANDBY = "regroup-node:"
"""Prefix of agents that were created before their job."""
_SUPERVISOR, _AGENT = supervisor_name("").rstrip(":"), agent_name("", "").rstrip(":")


def shown_supervisor_name(job_id: str, job_name: str) -> str:
    """Return the name of a job's supervisor in Ray."""
    return f"{_SUPERVISOR}:{job_name}:{job_id}"


def shown_agent_name(job_id: str, job_name: str, node_id: str, node_name: str) -> str:
    """Return the name in Ray of the actor that runs a job's ranks on one node."""
    return f"{_AGENT}:{job_name}:{node_name}:{job_id}:{node_id[:8]}"


def shown_standby_name(node_id: str, node_name: str, unique: str) -> str:
    """Return the name in Ray of an agent that has no job yet. It has the same name when it belongs to a job."""
    return f"{STANDBY}{node_name.replace('/', '-')}:{node_id[:8]}:{unique}"


def node_of_standby(shown: str) -> str:
    """Return the first characters of a standby's node id; empty for any other actor."""
    return shown.split(":")[-2] if shown.startswith(STANDBY) else ""


def name_of(shown: str) -> str:
    """Return `supervisor_name` or `agent_name` of an actor; empty for any other actor."""
    kind, *parts = shown.split(":")
    if kind == _SUPERVISOR and parts:
        return supervisor_name(parts[-1])
    return agent_name(*parts[-2:]) if kind == _AGENT and len(parts) > 1 else ""
