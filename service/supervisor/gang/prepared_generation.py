"""The next generation of a job, whose ranks are formed while the present one trains.

They boot, form their groups and build what needs no state. Then they wait. They do not belong to the job yet: the
record of their generation is written when the ranks before them are dead, and only then do they get the source of their
state. If anything fails before that, they are killed, and the change continues without them.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace

from regroup.service.ports.agents import AgentError, AgentLostError, Agents
from regroup.service.supervisor.gang.calls import gather_all
from regroup.service.supervisor.gang.formation import common_of
from regroup.service.supervisor.job_state.generations import Generation
from regroup.workers.contract.agent_records import AgentStatus
from regroup.workers.contract.messages import Exited, Failed, Join, Message
from regroup.workers.contract.rank_starts import RankStarts
from regroup.workers.contract.start_messages import LATER, Prepared, Restore

_FORM_TIMEOUT_S = 60.0
_DISCARD_TIMEOUT_S = 15.0


class PreparedGeneration:
    """The ranks that wait, on all nodes of the next generation."""

    def __init__(self, agents: Agents, generation: Generation, join: Join, secrets_version: str) -> None:
        """Initialize without ranks.

        Args:
            agents: agents of the job.
            generation: the next generation, with its number and places. Its source is not known yet.
            join: fields that are the same for all ranks.
            secrets_version: version of the project's secrets that the ranks get.
        """
        self.generation = generation
        self.failure = ""
        """Why the ranks cannot be used; empty if nothing has failed."""
        self._agents, self._join, self._secrets_version = agents, join, secrets_version
        self._waiting: set[int] = set()
        self._changed = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """True if every rank waits for its state."""
        return not self.failure and len(self._waiting) == len(self.generation.ranks)

    async def form(self, starts: Mapping[str, RankStarts]) -> None:
        """Form the ranks and wait until all are ready, or one has failed.

        Args:
            starts: node → its ranks.

        Raises:
            AgentLostError, AgentError: a node did not form its ranks.
            TimeoutError: the ranks take too long.
        """
        number, first = self.generation.number, self.generation.nodes[0]
        async with asyncio.timeout(_FORM_TIMEOUT_S):
            store = await self._agents.agent(first, timeout_s=_FORM_TIMEOUT_S).start_store(number, True)
            common = common_of(self.generation, self._join, store, Restore(LATER))
            agents = {node: self._agents.agent(node, timeout_s=_FORM_TIMEOUT_S) for node in starts}
            await gather_all(agents[node].prepare_ranks(common, ranks) for node, ranks in starts.items())
            while not (self.is_ready or self.failure):
                self._changed.clear()
                await self._changed.wait()

    def receive(self, message: Message) -> None:
        """Process a message of one of the ranks."""
        match message:
            case Prepared():
                self._waiting.add(message.rank)
            case Failed():
                self.failure = self.failure or f"rank {message.rank}: {message.error.kind}: {message.error.message}"
            case Exited():
                self.failure = self.failure or f"rank {message.rank} ended with code {message.code}"
            case _:
                return
        self._changed.set()

    def fits(self, generation: Generation, join: Join, secrets_version: str) -> bool:
        """Return whether the ranks can be those of a recorded generation."""
        mine = replace(self.generation, source=generation.source, cause=generation.cause)
        return self.is_ready and (mine, self._join, self._secrets_version) == (generation, join, secrets_version)

    def is_on(self, statuses: Mapping[str, AgentStatus]) -> bool:
        """Return whether every node still has its ranks. An agent that started again has none."""
        held = {node for node, status in statuses.items() if status.prepared == self.generation.number}
        return held >= set(self.generation.nodes)

    async def discard(self) -> None:
        """Kill the ranks on every node that answers. A node that does not kills them before it forms others."""

        async def one(node: str) -> None:
            with contextlib.suppress(AgentLostError, AgentError):
                await self._agents.agent(node, timeout_s=_DISCARD_TIMEOUT_S).discard_ranks(self.generation.number)

        self.failure = self.failure or "they were not needed"
        await asyncio.gather(*(one(node) for node in self.generation.nodes))
