"""The supervisor, which owns one job's generations. `service/ray_adapter/supervisor_actor.py` makes it a Ray actor.

The supervisor does not import torch, and its constructor does no I/O. Ray restarts the actor without a limit.
A restarted supervisor starts with the first call of an agent or the controller, replays its records
and adopts the running ranks.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from regroup.service.ports.agents import AgentLostError, Agents
from regroup.service.ports.cluster import LogChunk
from regroup.service.ports.sync import SupervisorEvent, SyncReply
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.gang.liveness import HeartbeatListener
from regroup.service.supervisor.gang.rank_inspection import dump_stacks
from regroup.service.supervisor.job_state.generations import GenerationLog, Records
from regroup.service.supervisor.job_state.intents import SyncReader
from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.service.supervisor.job_state.journal import Intake, Journal
from regroup.service.supervisor.job_state.pace import report_interval_s
from regroup.service.supervisor.job_state.project_secrets import ProjectSecrets
from regroup.service.supervisor.lifecycle import Lifecycle
from regroup.service.supervisor.spare_nodes import SpareNodes
from regroup.workers.contract.codec import plain
from regroup.workers.contract.messages import AgentReport, from_json

_SECRETS_WAIT_S = 1.0
"""Longest sync while secrets are missing: the controller learns from its reply that they are."""
_SAVE_WAIT_S = 2.0
"""Longest sync while a checkpoint is written, so that its progress is shown although no event happens."""


@dataclass(frozen=True)
class Adapters:
    """Connections of a supervisor to its cluster. `ray_adapter/supervisor_actor.py` implements them with Ray."""

    agents: Callable[[str], Agents]
    """Job id → its agents."""
    records: Records
    export_metrics: Callable[[JobConfig], Callable[[SupervisorEvent], None]]
    """Return a function that exports each event of the job as metrics of the cluster."""
    address: Callable[[], str]
    """Return the IP address of this node."""


class Supervisor:
    """Runs the lifecycles of a job one after the other. Agents and the controller call its methods."""

    def __init__(self, payload: dict[str, Any], adapters: Adapters) -> None:
        self._payload = JobConfig.from_json(payload)
        self._adapters = adapters
        self._started: asyncio.Task[None] | None = None
        self._records = adapters.records
        self._secrets = ProjectSecrets(self._payload.spec.project_secrets.values())
        self._requests = SyncReader()
        self._spares = SpareNodes(lambda node_id, note: self._lifecycle.receive_note(node_id, note))
        self._heartbeats = HeartbeatListener(lambda node_id: self._lifecycle.liveness.record_heartbeat(node_id))

    def __repr__(self) -> str:
        return f"regroup supervisor {self._payload.spec.name}"

    async def sync(self, request: dict[str, Any]) -> dict[str, Any]:
        """Receive intents and acknowledgements, and return events (long poll)."""
        self._wake()
        sync = self._requests.read(request)
        self._secrets.receive(sync.intents.secrets)
        self._lifecycle.set_intents(sync.intents)
        self._spares.set_desired(sync.intents.spares, self._payload, self._gang)
        wait_s = min(sync.wait_s, _SECRETS_WAIT_S) if self._secrets.is_missing else sync.wait_s
        if self._lifecycle.is_saving:
            wait_s = min(wait_s, max(_SAVE_WAIT_S, sync.gather_s))
        events = await self._journal.since(sync.boot_id, sync.acked_seq, wait_s, sync.gather_s)
        status = replace(self._lifecycle.status(), spares=self._spares.state, secrets_version=self._secrets.version)
        return SyncReply.of(self._journal.boot_id, events, status).to_json()

    async def report(self, report: dict[str, Any]) -> dict[str, Any]:
        """Receive an agent's report. Return which messages were received and which are in the database."""
        self._wake()
        agent_report = from_json(report)
        assert isinstance(agent_report, AgentReport)
        self._lifecycle.liveness.record_report(agent_report.node_id)
        for item in self._intake.filter_new(agent_report.boot_id, agent_report.supervisor_run, agent_report.messages):
            self._lifecycle.receive(agent_report.node_id, from_json(item))
        if agent_report.messages:
            self._intake.record_caused(agent_report.boot_id, self._journal.last_seq)
        has_base = self._lifecycle.receive_report(agent_report)
        listener = self._heartbeats.listener
        return {
            "heartbeats": listener and listener.to_json(),
            "boot_id": self._journal.boot_id,
            "report_every_s": self._report_interval_s(agent_report.node_id),
            "needs_full": not has_base,
            "received": self._intake.received(agent_report.boot_id),
            "durable": self._intake.durable(agent_report.boot_id, self._journal.acked_seq),
        }

    async def authorize_fault(self, index: int, do: str) -> bool:
        """Return whether to inject a rehearsed fault. Each fault is injected once per job, and recorded before that."""
        self._wake()
        if not self._payload.allow_faults:
            return False
        is_authorized = await self._records.create(f"fault/{self._payload.job_id}/{index}", do.encode())
        if is_authorized and do == "kill_store":
            with contextlib.suppress(AgentLostError):
                await self._gang.agents.agent(next(iter(self._gang.configs)), timeout_s=5).inject_fault(do)
        return is_authorized

    async def read_log(self, generation: int, rank: int, stream: str, offset: int, limit: int) -> dict[str, Any] | None:
        """Return a chunk of a rank's output from the node that has it, or None if no node has it."""
        self._wake()
        for node in self._gang.configs:
            with contextlib.suppress(AgentLostError):
                agent = self._gang.agents.agent(node, timeout_s=10)
                chunk = await agent.read_log(generation, rank, stream, offset, limit)
                if chunk.data is not None:
                    is_ended = self._lifecycle.has_ended(generation)
                    return asdict(
                        LogChunk.of(chunk.data, chunk.offset, chunk.size, is_ended=is_ended, requested_offset=offset)
                    )
        return None

    async def stacks(self) -> dict[str, Any]:
        """Return rank → stacks of all its threads. Ranks of a lost node are not included."""
        self._wake()
        if self._lifecycle.status().phase == "held":
            return self._lifecycle.failure_hold.stacks  # from before the ranks were killed
        return {str(rank): place for rank, place in (await dump_stacks(self._gang)).items()}

    async def agents(self) -> dict[str, Any]:
        """Return the status of every agent, for people and tests."""
        self._wake()
        return plain(await self._gang.call_all(lambda agent: agent.status(), timeout_s=10))

    async def shutdown(self) -> None:
        """Stop the agents. The caller kills this actor afterwards."""
        self._wake()
        await self._spares.stop()
        if self._started is not None:
            self._started.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._started
        await self._gang.shut_down_all()
        self._heartbeats.close()

    def _report_interval_s(self, node_id: str) -> float:
        """Return how often an agent reports. Behind a firewall that drops heartbeats, reports replace them."""
        has_heartbeats = self._lifecycle.liveness.has_heartbeats(node_id)
        return report_interval_s(len(self._payload.nodes) if has_heartbeats else 1)

    def _wake(self) -> None:
        if self._started is None:
            self._export = self._adapters.export_metrics(self._payload)
            agents, configs = self._adapters.agents(self._payload.job_id), self._payload.agent_configs()
            self._start_lifecycle(Gang(agents, configs, secrets=self._secrets))
            self._started = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        """Run one lifecycle after the other. A new one starts after each relocation, as in a restarted supervisor."""
        await self._heartbeats.listen(self._adapters.address(), self._payload.ports)
        while (relocated := await self._lifecycle.run()) is not None:
            removed = self._gang.configs.keys() - relocated.node_ids - relocated.former.keys()
            await self._gang.kill_agents(removed)
            self._payload = self._payload.with_nodes(relocated.nodes, relocated.layout)
            journal = self._journal
            self._start_lifecycle(self._gang.with_configs(self._payload.agent_configs(), relocated.former))
            journal.close()

    def _start_lifecycle(self, gang: Gang) -> None:
        payload = self._payload
        self._journal = Journal(self._records, payload.job_id, on_event=self._export)
        self._intake = Intake(self._journal.boot_id)
        self._gang = gang
        log = GenerationLog(self._records, payload.job_id, payload.generations)
        self._lifecycle = Lifecycle(payload, self._gang, log, self._journal)
