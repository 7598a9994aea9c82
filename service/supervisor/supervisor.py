"""The supervisor: it owns one job's generations. `service/ray_adapter/supervisor_actor.py` makes it a Ray actor.

It imports no torch, and its constructor does no I/O.

Ray restarts it for ever. A new life wakes with the first call of an agent or the controller, replays its records and
re-adopts what runs.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from regroup.service.ports.agents import AgentLostError, Agents
from regroup.service.ports.cluster import LogChunk
from regroup.service.ports.sync import SupervisorEvent, SyncReply, SyncRequest
from regroup.service.supervisor.gang import Gang
from regroup.service.supervisor.generations import GenerationLog, Records
from regroup.service.supervisor.heartbeat_listener import HeartbeatListener
from regroup.service.supervisor.job_config import JobConfig
from regroup.service.supervisor.journal import Intake, Journal
from regroup.service.supervisor.lifecycle import Lifecycle
from regroup.service.supervisor.rank_inspection import dump_stacks
from regroup.service.supervisor.spare_nodes import SpareNodes
from regroup.workers.contract.codec import plain
from regroup.workers.contract.messages import AgentReport, from_json


@dataclass(frozen=True)
class Adapters:
    """Connections of a supervisor to its cluster; `ray_adapter/supervisor_actor.py` makes them on Ray."""

    agents: Callable[[str], Agents]
    """Job id → its agents."""
    records: Records
    export_metrics: Callable[[JobConfig], Callable[[SupervisorEvent], None]]
    """Return what exports each event of the job as metrics of the cluster."""
    address: Callable[[], str]
    """Return the IP address of this node."""


class Supervisor:
    """One life of a job after the other, for agents and the controller to call."""

    def __init__(self, payload: dict[str, Any], adapters: Adapters) -> None:
        self._payload = JobConfig.from_json(payload)
        self._adapters = adapters
        self._started: asyncio.Task[None] | None = None
        self._records = adapters.records
        self._spares = SpareNodes(lambda node_id, note: self._lifecycle.handle_note(node_id, note))
        self._heartbeats = HeartbeatListener(lambda node_id: self._lifecycle.liveness.record_heartbeat(node_id))

    def __repr__(self) -> str:
        return f"regroup supervisor {self._payload.spec.name}"

    async def sync(self, request: dict[str, Any]) -> dict[str, Any]:
        """Take intents and acknowledgements, give events; a long poll."""
        self._wake()
        asked = SyncRequest.from_json(request)
        self._lifecycle.set_intents(asked.intents)
        self._spares.set_desired(asked.intents.spares, self._payload, self._gang)
        events = await self._journal.since(asked.boot_id, asked.acked_seq, asked.wait_s)
        status = replace(self._lifecycle.status(), spares=self._spares.state)
        return SyncReply(self._journal.boot_id, tuple(events), status).to_json()

    async def report(self, report: dict[str, Any]) -> dict[str, Any]:
        """Take an agent's news; returns what was received and what the database has."""
        self._wake()
        news = from_json(report)
        assert isinstance(news, AgentReport)
        self._lifecycle.liveness.record_report(news.node_id)
        for item in self._intake.filter_new(news.boot_id, news.supervisor_run, news.messages):
            self._lifecycle.receive(news.node_id, from_json(item))
        if news.messages:
            self._intake.record_caused(news.boot_id, self._journal.last_seq)
        self._lifecycle.receive_report(news)
        listener = self._heartbeats.listener
        return {
            "heartbeats": listener and listener.to_json(),
            "boot_id": self._journal.boot_id,
            "received": self._intake.received(news.boot_id),
            "durable": self._intake.durable(news.boot_id, self._journal.acked_seq),
        }

    async def grant_fault(self, index: int, do: str) -> bool:
        """Whether a rehearsed fault may strike: once in the job's life, recorded before it acts."""
        self._wake()
        if not self._payload.allow_faults:
            return False
        granted = await self._records.create(f"fault/{self._payload.job_id}/{index}", do.encode())
        if granted and do == "kill_store":
            with contextlib.suppress(AgentLostError):
                await self._gang.agents.agent(next(iter(self._gang.configs)), timeout_s=5).inject_fault(do)
        return granted

    async def read_log(self, generation: int, rank: int, stream: str, offset: int, limit: int) -> dict[str, Any] | None:
        """A piece of a rank's output, from the node that has it; None where no node has."""
        self._wake()
        for node in self._gang.configs:
            with contextlib.suppress(AgentLostError):
                agent = self._gang.agents.agent(node, timeout_s=10)
                piece = await agent.read_log(generation, rank, stream, offset, limit)
                if piece.data is not None:
                    is_ended = self._lifecycle.has_ended(generation)
                    return asdict(
                        LogChunk.of(piece.data, piece.offset, piece.size, is_ended=is_ended, requested_offset=offset)
                    )
        return None

    async def stacks(self) -> dict[str, Any]:
        """Rank → where every thread of it is now; the ranks of a lost node are left out."""
        self._wake()
        if self._lifecycle.status().phase == "held":
            return self._lifecycle.failure_hold.stacks  # where they were before they were ended
        return {str(rank): place for rank, place in (await dump_stacks(self._gang)).items()}

    async def agents(self) -> dict[str, Any]:
        """Status of every agent, for people and tests."""
        self._wake()
        return plain(await self._gang.call_all(lambda agent: agent.status(), timeout_s=10))

    async def shutdown(self) -> None:
        """End the agents; the caller kills this actor when it has returned."""
        self._wake()
        await self._spares.stop()
        if self._started is not None:
            self._started.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._started
        await self._gang.shut_down_all()
        self._heartbeats.close()

    def _wake(self) -> None:
        if self._started is None:
            self._export = self._adapters.export_metrics(self._payload)
            self._start_lifecycle(Gang(self._adapters.agents(self._payload.job_id), self._payload.agent_configs()))
            self._started = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        """One life after the other: a new one begins as a restarted supervisor would, whenever the nodes are others."""
        await self._heartbeats.listen(self._adapters.address(), self._payload.ports)
        while (moved := await self._lifecycle.run()) is not None:
            left = self._gang.configs.keys() - moved.node_ids - moved.former.keys()
            await self._gang.kill_agents(left)
            self._payload = self._payload.with_nodes(moved.nodes, moved.layout)
            journal = self._journal
            self._start_lifecycle(self._gang.with_configs(self._payload.agent_configs(), moved.former))
            journal.close()

    def _start_lifecycle(self, gang: Gang) -> None:
        payload = self._payload
        self._journal = Journal(self._records, payload.job_id, on_event=self._export)
        self._intake = Intake(self._journal.boot_id)
        self._gang = gang
        log = GenerationLog(self._records, payload.job_id, payload.generations)
        self._lifecycle = Lifecycle(payload, self._gang, log, self._journal)
