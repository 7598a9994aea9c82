"""The supervisor's side of spares: agent, Python and data are made ready on nodes where the job has no ranks."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from regroup.service.ports.agents import AgentError, AgentLostError
from regroup.service.ports.assignment import NodeAssignment
from regroup.service.ports.sync import READY
from regroup.service.supervisor.gang import Gang
from regroup.service.supervisor.job_config import JobConfig
from regroup.service.supervisor.node_setup import prepare_nodes
from regroup.workers.contract.messages import Note

_POLL_S, _ANSWER_TIMEOUT_S = 2.0, 10.0
"""Its node trains nothing that would show its end, and Ray may believe in it for half a minute."""


class SpareNodes:
    """Of one supervisor, over all lives of its job."""

    def __init__(self, note: Callable[[str, Note], None]) -> None:
        """`note`: hears what they have found."""
        self._note = note
        self.state: dict[str, str] = {}
        """Node id → `ready`, empty while it is made so, or why it cannot be."""
        self._work: dict[str, asyncio.Task[None]] = {}

    def set_desired(self, nodes: Sequence[NodeAssignment], payload: JobConfig, gang: Gang) -> None:
        """These nodes are to be ready, and no others. One that takes ranks over is left as it is, and one that is given
        back is the controller's to end."""
        wanted = {node.node_id: node for node in nodes}
        for node_id in self.state.keys() - wanted.keys():
            self._work.pop(node_id).cancel()
            del self.state[node_id]
            gang.node_facts.forget([node_id])
        for node_id in wanted.keys() - self.state.keys():
            self.state[node_id] = ""
            work = self._prepare_and_poll(node_id, payload.with_node(wanted[node_id]), gang)
            self._work[node_id] = asyncio.get_running_loop().create_task(work)

    async def stop(self) -> None:
        """Keep nothing ready any more."""
        for task in self._work.values():
            task.cancel()
        for task in self._work.values():
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _prepare_and_poll(self, node_id: str, payload: JobConfig, gang: Gang) -> None:
        alone = gang.with_configs({node_id: payload.agent_configs()[node_id]})
        try:
            await prepare_nodes(payload, alone, self._note)
            self.state[node_id] = READY
            while True:  # until it is given back, or takes ranks over
                await asyncio.sleep(_POLL_S)
                await gang.agents.agent(node_id, timeout_s=_ANSWER_TIMEOUT_S).status()
        except (AgentError, AgentLostError) as error:
            self.state[node_id] = str(error)
        except Exception as error:  # else it would be waited for
            self.state[node_id] = f"{type(error).__name__}: {error}; please report this"
