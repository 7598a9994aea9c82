"""Preparation of spare nodes, where the job has no ranks: agent, Python environment and data."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from regroup.service.ports.agents import AgentError, AgentLostError
from regroup.service.ports.assignment import NodeAssignment
from regroup.service.ports.sync import READY
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.gang_setup import prepare_nodes
from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.workers.contract.messages import Note

_POLL_S, _ANSWER_TIMEOUT_S = 2.0, 10.0
"""Seconds between polls of a spare node, and their time limit. No training shows its loss, and Ray may take 30 s."""


class SpareNodes:
    """Prepares and polls the spare nodes of one job, across relocations."""

    def __init__(self, on_note: Callable[[str, Note], None]) -> None:
        """Initialize without spare nodes. `on_note` receives the notes of the nodes."""
        self._on_note = on_note
        self.state: dict[str, str] = {}
        """Node id → `ready`, empty text during preparation, or why the node cannot be used."""
        self._work: dict[str, asyncio.Task[None]] = {}

    def set_desired(self, nodes: Sequence[NodeAssignment], payload: JobConfig, gang: Gang) -> None:
        """Prepare these nodes, and stop preparing all others.

        A node that was promoted into the job stays as it is. The controller stops the agent of a released node.
        """
        desired = {node.node_id: node for node in nodes}
        for node_id in self.state.keys() - desired.keys():
            self._work.pop(node_id).cancel()
            del self.state[node_id]
            gang.node_facts.forget([node_id])
        for node_id in desired.keys() - self.state.keys():
            self.state[node_id] = ""
            work = self._prepare_and_poll(node_id, payload.with_node(desired[node_id]), gang)
            self._work[node_id] = asyncio.get_running_loop().create_task(work)

    async def stop(self) -> None:
        """Stop the preparation and the polls of all nodes."""
        for task in self._work.values():
            task.cancel()
        for task in self._work.values():
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _prepare_and_poll(self, node_id: str, payload: JobConfig, gang: Gang) -> None:
        single = gang.with_configs({node_id: payload.agent_configs()[node_id]})
        try:
            await prepare_nodes(payload, single, self._on_note)
            self.state[node_id] = READY
            while True:  # until the node is released or promoted
                await asyncio.sleep(_POLL_S)
                await gang.agents.agent(node_id, timeout_s=_ANSWER_TIMEOUT_S).status()
        except (AgentError, AgentLostError) as error:
            self.state[node_id] = str(error)
        except Exception as error:  # otherwise the controller would wait without end
            self.state[node_id] = f"{type(error).__name__}: {error}; please report this"
