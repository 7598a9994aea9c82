"""Protocol that reaches the agents of a job, and its errors."""

from typing import Protocol

from regroup.service.domain.errors import RegroupError
from regroup.workers.contract.agent_api import AgentApi
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import AgentErrorKind, AgentFailure

INPUT_ERROR_KINDS = frozenset({
    AgentErrorKind.CODE, AgentErrorKind.PRELOAD, AgentErrorKind.SECRET, AgentErrorKind.ENVIRONMENT, AgentErrorKind.DATA,
    AgentErrorKind.FILE, AgentErrorKind.STORAGE, AgentErrorKind.START,
})  # fmt: skip
"""Kinds of errors that a person has to fix: a retry does not help."""


class AgentLostError(RegroupError):
    """An agent's actor is dead or silent."""

    def __init__(self, node_id: str, message: str) -> None:
        super().__init__(message)
        self.node_id = node_id


class AgentError(RegroupError):
    """An agent failed for a reason that a person can act on."""

    def __init__(
        self,
        node_id: str,
        node_name: str,
        kind: AgentErrorKind,
        message: str,
        traceback: str = "",
        failed_holders: tuple[str, ...] = (),
    ) -> None:
        super().__init__(f"{message} (node {node_name})")
        self.node_id, self.kind, self.message, self.traceback = node_id, kind, message, traceback
        self.failed_holders = failed_holders
        """Nodes that had state for this node and did not deliver it."""

    @classmethod
    def of(cls, node_id: str, failure: AgentFailure) -> "AgentError":
        """Return the error of a node's agent."""
        texts = failure.message, failure.traceback
        return cls(node_id, failure.node_name, failure.kind, *texts, failure.failed_holders)


class Agents(Protocol):
    """Access to the agents of a job. `RayAgents` is the implementation on Ray."""

    async def start(self, config: AgentConfig) -> None:
        """Create the agent's actor on its node, or find it there."""
        ...

    def agent(self, node_id: str, *, timeout_s: float) -> AgentApi:
        """Return a node's agent. Each call of it takes up to `timeout_s`.

        Its calls raise:
            AgentLostError: the actor is dead or did not answer in time.
            AgentError: the agent failed.
        """
        ...

    async def kill(self, node_id: str) -> None:
        """Kill the actor. A missing actor is ignored."""
        ...

    async def planned_end(self, node_id: str) -> str:
        """Return why a node ended by plan, for example by SIGTERM; empty for any other node."""
        ...
