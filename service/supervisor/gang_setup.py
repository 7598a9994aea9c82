"""Start of a job's agents, their replacement after a loss, and preparation of data and nodes."""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence

from regroup.service.domain.supervisor_phase import SupervisorPhase
from regroup.service.ports.agents import AgentError, AgentLostError
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.gang.liveness import Liveness
from regroup.service.supervisor.gang.preflight import check_nodes
from regroup.service.supervisor.gang.storage_proof import StorageProof
from regroup.service.supervisor.job_state.event_log import EventLog
from regroup.service.supervisor.job_state.generations import GenerationLog
from regroup.service.supervisor.job_state.intents import IntentTracker
from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.service.supervisor.job_state.outcomes import Relocated
from regroup.service.supervisor.job_state.supervisor_state import SupervisorState
from regroup.service.supervisor.recovery import RecoveryRun, start_outcome
from regroup.workers.contract.agent_records import AgentErrorKind
from regroup.workers.contract.messages import Note

GANG_TIMEOUT_S = 120.0
FENCE_S = 60.0
"""Longest time in seconds that ranks may write files on a silent node without proof of death."""
READY_TIMEOUT_S = 120.0
_OVERDUE_S = 5.0
"""Seconds after which agents that are not up may be on lost nodes."""
_POLL_S = 0.5


class GangSetup:
    """Brings a job's gang up at the start and after a loss. Each wait ends when an intent interrupts it."""

    def __init__(
        self,
        payload: JobConfig,
        gang: Gang,
        generations: GenerationLog,
        state: SupervisorState,
        log: EventLog,
        intents: IntentTracker,
        liveness: Liveness,
        recovery: RecoveryRun,
        storage: StorageProof,
    ) -> None:
        self._payload, self._gang, self._generations = payload, gang, generations
        self._state, self._log, self._intents = state, log, intents
        self._liveness, self._recovery, self._storage = liveness, recovery, storage
        self._started_s: float | None = None
        """Monotonic time at which the present start of agents began."""

    def lost_nodes(self) -> Collection[str]:
        """Return the nodes that may be permanently lost, so that the controller checks them."""
        is_overdue = self._started_s is not None and time.monotonic() - self._started_s > _OVERDUE_S
        return self._gang.missing if is_overdue else self._gang.missing.intersection(self._intents.lost_nodes)

    async def start_agents(self) -> None:
        """Start all agents and zygotes that are not up.

        Raises:
            Finished: the spec names an input that is missing or invalid.
            AgentLostError: an agent is not up in time.
        """
        self._state.enter_phase(SupervisorPhase.AGENTS, None, "starting agents and zygotes")
        self._started_s = time.monotonic()
        try:
            await self._intents.interruptible(self._gang.start_agents(GANG_TIMEOUT_S))
        except AgentError as error:
            raise start_outcome(error) from error
        finally:
            self._started_s = None
        self._liveness.expect(self._gang.configs)
        self._log.emit_nodes({node: self._gang.node_facts.descriptions[node] for node in self._gang.configs})

    async def prepare_data(self) -> None:
        """Prove the storage and prepare the job's data on all nodes. Retry while storage does not respond.

        Raises:
            Finished: the data or the storage is missing or invalid.
            AgentLostError: an agent was lost during the preparation.
        """
        try:
            proof = self._storage.run(may_defer=bool(self._generations.past))
            await self._intents.interruptible(proof)
            preparation = self._gang.prepare_data(self._payload.data_sources)
            await self._intents.interruptible(self._liveness.run_while_alive(self._gang.configs, preparation))
        except AgentError as error:
            is_retried = error.kind is AgentErrorKind.STORAGE and self._generations.past
            if error.kind is not AgentErrorKind.STORAGE_UNAVAILABLE and not is_retried:
                raise start_outcome(error) from error
            await self._intents.interruptible(self._recovery.wait_for_storage(error))
            await self.prepare_data()
        self._liveness.expect(self._gang.configs)

    async def replace_lost(self, lost: Sequence[str]) -> None:
        """Start agents on the lost nodes again. Each agent kills the ranks of its predecessor, which proves them dead.

        If an agent does not start, the controller may assign another node. A job that writes its own files moves only
        after the ranks on the lost node must have stopped.
        """
        since_s = time.monotonic()
        self._intents.lost_nodes = tuple(lost)
        while self._intents.lost_nodes:
            try:
                await self.start_agents()
                self._intents.lost_nodes = ()
            except (AgentLostError, Relocated):
                waited_s = time.monotonic() - since_s
                if self._intents.interruption() is None and waited_s < GANG_TIMEOUT_S:
                    await asyncio.sleep(_POLL_S)  # Ray may not have detected the node loss, or an agent died again
                    continue
                if self._payload.script is not None and waited_s < FENCE_S:
                    names = ", ".join(self._gang.configs[node].node_name for node in lost)
                    message = f"waiting {FENCE_S - waited_s:.0f} s: ranks on {names} may still write files"
                    self._state.enter_phase(SupervisorPhase.FENCE, None, message)
                    await self._intents.interruptible(asyncio.sleep(FENCE_S - waited_s), by_relocation=False)
                raise


async def prepare_nodes(payload: JobConfig, gang: Gang, emit_note: Callable[[str, Note], None]) -> None:
    """Prepare the nodes of `gang` for a job that trains elsewhere: agent, Python environment, data and preflight.

    The job's own gang shares the facts about these nodes.

    Args:
        emit_note: receives the notes of the nodes.

    Raises:
        AgentLostError, AgentError: a node is not up in time, cannot do what the spec asks for, or is unfit.
    """
    await gang.start_agents(READY_TIMEOUT_S)
    await StorageProof(gang, payload.storage_nonce, emit_note).run(may_defer=True)
    await gang.prepare_data(payload.data_sources)
    unfit = await check_nodes(payload, gang, emit_note) if payload.preflight else ()
    if (worst := next((each for each in unfit if each.is_excluded), None)) is not None:
        raise AgentError(worst.node_id, gang.configs[worst.node_id].node_name, AgentErrorKind.PREFLIGHT, worst.message)
