"""A cluster in memory with the guarantees of Ray's, for tests and to try a policy without machines."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from regroup.service.domain.errors import NotFoundError
from regroup.service.policy.scheduling.autoscaler_request import Bundle
from regroup.service.ports.cluster import (
    ClusterUnavailableError,
    LogChunk,
    Node,
    Reservation,
    ReservationRefusedError,
    SupervisorGoneError,
    job_id_of,
    supervisor_name,
)
from regroup.service.ports.start_config import StartConfig
from regroup.service.ports.sync import SupervisorEvent, SupervisorStatus, SyncReply, SyncRequest
from regroup.workers.contract.agent_records import CommandExit, CommandOutput, CommandRequest, RankStack
from regroup.workers.contract.codec import build, plain
from tests.support.inputs.job_events import event_data


class FakeSupervisor:
    """A supervisor that reports what a test gives it, and records the intents that it receives."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        self.payload = payload
        self.intents: dict[str, Any] = {}
        """Intents that were set so far, as plain data."""
        self.status = SupervisorStatus()
        """Status that it reports."""
        self.boot_id = uuid4().hex
        self._events: list[SupervisorEvent] = []
        self._seq = 0
        self._news = asyncio.Condition()

    async def emit(self, event_type: str, /, key: str | None = None, generation: int = 1, **data: Any) -> None:
        """Report an event; its key is `event_type:seq` unless given."""
        async with self._news:
            self._seq += 1
            key = key or f"{event_type}:{self._seq}"
            time_s = time.time()
            data = event_data(event_type, generation, time_s, data)
            event = SupervisorEvent(self._seq, key, event_type, generation, time_s, data)
            self._events.append(event)
            self._news.notify_all()

    async def state(self, state: str, reason: str, message: str = "", **data: Any) -> None:
        """Report a state of the job."""
        await self.emit("state", state=state, reason=reason, message=message, **data)

    async def restart(self) -> None:
        """Restart under a new boot id. It sends unacknowledged events again, under new numbers."""
        async with self._news:
            self.boot_id = uuid4().hex
            self._events = [replace(event, seq=number) for number, event in enumerate(self._events, 1)]
            self._seq = len(self._events)
            self._news.notify_all()

    async def wait_for_intent(self, name: str) -> Any:
        """Return the value of an intent, once it has arrived."""
        async with self._news:
            await self._news.wait_for(lambda: name in self.intents)
            return self.intents[name]

    async def wait_for_first_intent(self, *names: str) -> str:
        """Return the first of these names that is the name of an intent, once one has arrived."""
        async with self._news:
            await self._news.wait_for(lambda: not self.intents.keys().isdisjoint(names))
            return next(name for name in names if name in self.intents)

    async def sync(self, request: SyncRequest) -> SyncReply:
        """Answer a long poll."""
        async with self._news:
            self.intents.update(plain(request.intents.set_fields()))
            self._news.notify_all()
            if request.boot_id == self.boot_id:
                self._events = [event for event in self._events if event.seq > request.acked_seq]
            try:
                async with asyncio.timeout(request.wait_s):
                    await self._news.wait_for(lambda: bool(self._events))
            except TimeoutError:
                pass
            return SyncReply.of(self.boot_id, self._events, self.status)


class FakeCluster:
    """Implements `Cluster` in memory. `reachable = False` makes every call fail like a lost Ray."""

    def __init__(self, nodes: Sequence[Node] = (), on_start: Callable[[FakeSupervisor], None] | None = None) -> None:
        self.reachable = True
        self.held: dict[str, Reservation] = {}
        self.refuse: set[str] = set()
        """Ids of nodes that refuse every reservation."""
        self.supervisors: dict[str, FakeSupervisor] = {}
        self.agents: set[str] = set()
        self.forgotten: list[str] = []
        self.recorded: set[str] = set()
        """Jobs with generation records."""
        self.calls: list[str] = []
        """Actions, in order: `take NAME`, `start NAME`, `stop NAME`, `release NAME`, `kill NAME`."""
        self.lost: list[str] = []
        """Names of nodes that ended unexpectedly."""
        self.warmed: list[str] = []
        """Prewarm actions, in order: `prestart NODE`, `stand by NODE`."""
        self.requested: list[tuple[Bundle, ...]] = []
        """Requests for nodes, in order."""
        self.unfit: dict[str, str] = {}
        """Node id → fault that the preflight check of a standby finds."""
        self.clear: set[tuple[str, str]] = set()
        """(node id, job) of nodes that have nothing of the job left."""
        self.logs: dict[tuple[str, int, int, str], str] = {}
        self.running: dict[str, dict[str, dict[str, Any]]] = {}
        """Job → rank → its stacks."""
        self.orders: list[dict[str, Any]] = []
        """Commands to run next to ranks."""
        self.outputs: list[tuple[str, bytes] | dict[str, Any]] = []
        """Next outputs of a command: (stream, bytes), or `code` and `why` of its end."""
        self._nodes = {node.id: node for node in nodes}
        self._on_start = on_start

    def add_node(self, node: Node) -> None:
        """Add a node."""
        self._nodes[node.id] = node

    def remove_node(self, node_id: str) -> None:
        """Remove a node with its reservations."""
        del self._nodes[node_id]
        self.held = {name: reservation for name, reservation in self.held.items() if reservation.node_id != node_id}

    def drain_node(self, node_id: str, deadline_s: float | None) -> None:
        """Mark a node as draining, as the cluster itself would."""
        self._nodes[node_id] = replace(self._nodes[node_id], is_draining=True, drain_deadline_s=deadline_s)

    async def nodes(self) -> Sequence[Node]:
        self._reach()
        return [self._with_free(node) for node in self._nodes.values()]

    async def unreachable(self) -> Mapping[str, str]:
        self._reach()
        return {}

    async def lost_nodes(self) -> Sequence[str]:
        self._reach()
        return self.lost

    async def request_nodes(self, bundles: Sequence[Bundle]) -> None:
        self._reach()
        self.requested.append(tuple(bundles))

    async def prestart(self, node: Node) -> None:
        self._reach()
        self.warmed.append(f"prestart {node.id}")

    async def stand_by(self, node: Node, ifname: str, *, preflight: bool, rank_users: str = "") -> str:
        self._reach()
        self.warmed.append(f"stand by {node.id}")
        return self.unfit.get(node.id, "") if preflight else ""

    async def is_clear(self, node: Node, job_id: str) -> bool:
        self._reach()
        return (node.id, job_id) in self.clear

    async def create_reservation(self, reservation: Reservation) -> Sequence[int]:
        self._reach()
        if reservation.name in self.held:
            return self._devices(reservation)
        node = self._nodes.get(reservation.node_id)
        free = self._with_free(node) if node else None
        gpus = reservation.devices if reservation.device_kind == "cuda" else 0
        if (
            free is None
            or reservation.node_id in self.refuse
            or free.free_cpus < reservation.cpus
            or free.free_gpus < gpus
        ):
            raise ReservationRefusedError(
                f"node {reservation.node_id} does not hold {reservation.devices} {reservation.device_kind} free"
            )
        self.calls.append(f"take {reservation.name}")
        self.held[reservation.name] = reservation
        return self._devices(reservation)

    async def release_reservation(self, name: str) -> None:
        self._reach()
        if self.held.pop(name, None):
            self.calls.append(f"release {name}")

    async def reservations(self, job_id: str = "") -> set[str]:
        self._reach()
        return {name for name in self.held if job_id in ("", job_id_of(name))}

    async def actors(self, job_id: str = "") -> set[str]:
        self._reach()
        return {name for name in set(self.supervisors) | self.agents if job_id in ("", job_id_of(name))}

    async def start_agents(self, config: StartConfig) -> None:
        """Do nothing: scripted supervisors have no agents."""

    async def start_supervisor(self, name: str, config: StartConfig) -> None:
        self._reach()
        if name in self.supervisors:
            return
        self.calls.append(f"start {name}")
        self.supervisors[name] = FakeSupervisor(config.to_json())
        if self._on_start:
            self._on_start(self.supervisors[name])

    async def sync(self, job_id: str, request: SyncRequest) -> SyncReply:
        self._reach()
        supervisor = self.supervisors.get(supervisor_name(job_id))
        if supervisor is None:
            raise SupervisorGoneError(f"job {job_id} has no supervisor")
        return await supervisor.sync(request)

    async def stop_supervisor(self, name: str) -> None:
        self._reach()
        if self.supervisors.pop(name, None):
            self.calls.append(f"stop {name}")
            self.agents = {agent for agent in self.agents if job_id_of(agent) != job_id_of(name)}

    async def kill_actor(self, name: str) -> None:
        self._reach()
        self.calls.append(f"kill {name}")
        self.supervisors.pop(name, None)
        self.agents.discard(name)

    async def recorded_jobs(self) -> set[str]:
        self._reach()
        return set(self.recorded)

    async def forget_job(self, job_id: str) -> None:
        self._reach()
        self.recorded.discard(job_id)
        self.forgotten.append(job_id)

    async def read_log(self, job_id: str, generation: int, rank: int, stream: str, offset: int, limit: int) -> LogChunk:
        self._reach()
        text = self.logs.get((job_id, generation, rank, stream))
        if text is None:
            raise NotFoundError(f"job {job_id} has no {stream} of rank {rank} in generation {generation}")
        whole = text.encode()
        return LogChunk.of(whole[offset : offset + limit], offset, len(whole), is_ended=True)

    async def stacks(self, job_id: str) -> Mapping[int, RankStack]:
        self._reach()
        if job_id not in self.running:
            raise NotFoundError(f"job {job_id} has no ranks now")
        return {int(rank): build(RankStack, stack) for rank, stack in self.running[job_id].items()}

    async def execute(self, job_id: str, node_id: str, request: CommandRequest) -> int:
        self._reach()
        self.orders.append({"job_id": job_id, "node_id": node_id, **plain(request)})
        return 1

    async def execution(self, job_id: str, node_id: str, key: str, limit_bytes: int, wait_s: float) -> CommandOutput:
        self._reach()
        if limit_bytes <= 0:
            return CommandOutput()
        if not self.outputs:
            await asyncio.sleep(min(wait_s, 0.05))
            return CommandOutput()
        output = self.outputs.pop(0)
        return CommandOutput((output,)) if isinstance(output, tuple) else CommandOutput(ended=CommandExit(**output))

    async def end_execution(self, job_id: str, node_id: str, key: str) -> None:
        self._reach()
        self.calls.append(f"end execution {key}")

    async def dashboard_url(self) -> str | None:
        self._reach()
        return None

    def _reach(self) -> None:
        if not self.reachable:
            raise ClusterUnavailableError("the cluster does not answer")

    def _with_free(self, node: Node) -> Node:
        here = [reservation for reservation in self.held.values() if reservation.node_id == node.id]
        return replace(
            node,
            free_cpus=node.cpus - sum(reservation.cpus for reservation in here),
            free_gpus=node.gpus - sum(reservation.devices for reservation in here if reservation.device_kind == "cuda"),
            free_memory_bytes=node.memory_bytes - sum(reservation.memory_bytes for reservation in here),
        )

    def _devices(self, reservation: Reservation) -> Sequence[int]:
        if reservation.device_kind != "cuda":
            return ()
        first = sum(
            g.devices for g in self.held.values() if g.node_id == reservation.node_id and g.name < reservation.name
        )
        return tuple(range(first, first + reservation.devices))
