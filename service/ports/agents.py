"""How a job's agents are reached, and what can be wrong with one."""

from typing import Any, Protocol

from regroup.service.domain.errors import RegroupError
from regroup.workers.contract.agent_config import AgentConfig


class AgentLostError(RegroupError):
    """An agent's actor is dead or silent."""

    def __init__(self, node_id: str, message: str) -> None:
        super().__init__(message)
        self.node_id = node_id


class AgentError(RegroupError):
    """An agent refused for a reason that a person can act on."""

    def __init__(self, node_id: str, node_name: str, kind: str, message: str, traceback: str) -> None:
        super().__init__(f"{message} (node {node_name})")
        self.node_id, self.kind, self.traceback = node_id, kind, traceback


class Agents(Protocol):
    """How agents are reached; `ray_agents.RayAgents` is the real one."""

    async def start(self, config: AgentConfig) -> None:
        """Create the agent's actor on its node, or find it there."""
        ...

    async def call(self, node_id: str, method: str, *args: Any, timeout_s: float) -> Any:
        """Call a method.

        Raises:
            AgentLostError: the actor is dead or did not answer in time.
        """
        ...

    async def kill(self, node_id: str) -> None:
        """End the actor by force; a missing one is no error."""
        ...

    async def farewell(self, node_id: str) -> str:
        """Why a node has left by plan, e.g. by SIGTERM; empty if it has not, or nobody knows."""
        ...
