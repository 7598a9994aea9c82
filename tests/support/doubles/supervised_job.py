"""A supervisor over two agents in memory, whose ranks follow a script."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from regroup.service.ports.agents import AgentLostError
from regroup.service.spec.job import parse_spec
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.job_state.generations import GenerationLog
from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.service.supervisor.job_state.journal import Journal
from regroup.service.supervisor.lifecycle import Lifecycle
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import (
    AgentErrorKind,
    AgentStatus,
    CheckpointScan,
    DeathProof,
    ShardHolder,
)
from regroup.workers.contract.held_sets import HeldShard
from regroup.workers.contract.messages import Done, Join, Joined, Message, Restored, StepRow, to_json
from regroup.workers.contract.start_messages import Prepared, Restore
from tests.support.doubles.fake_agents import FakeAgents
from tests.support.doubles.memory_records import Records

STEPS = 6
SPEC = {
    "name": "t",
    "workload": {"kind": "builtin", "data": {"train": ["/x"]}},
    "training": {"global_batch": 4, "micro_batch": 1, "sequence": 8, "steps": STEPS},
    "layout": {"dp": 2},
    "recovery": {"budgets": {"rank_exit": 2, "io_error": 2}},
}


class FakeNodes(FakeAgents):
    """Two agents whose ranks commit steps until a scripted `(formation, step)` fails.

    The first formation of ranks is that of generation 1, and so on, unless a generation was never formed.
    """

    def __init__(self, breaks: Mapping[tuple[int, int], Message | str]) -> None:
        super().__init__()
        self.breaks = dict(breaks)
        self.life: Lifecycle | None = None
        self.held: dict[str, HeldShard] = {}
        self.generation: dict[str, int] = {}
        self.dead: set[str] = set()
        self.killed: set[str] = set()
        """Nodes whose agents died and were not started again."""
        self.refuse: Mapping[str, str] = {}
        """Method → message of its error."""
        self.refuse_kind = AgentErrorKind.DATA
        self.stuck = ""
        self.reported: dict[str, list[Message]] = {}
        self.running: dict[str, list[int]] = {}
        self.formed: list[int] = []
        """Generations whose ranks were formed."""
        self.joins: list[Join] = []
        """Message to each rank that was formed."""
        self.manifests: list[dict[str, Any]] = []
        self.damaged: set[str] = set()
        """URIs of checkpoints that do not verify."""
        self.away = 0
        """Number of further calls that durable storage does not answer."""
        self.prepared: dict[str, tuple[Sequence[Join], Sequence[int]]] = {}
        """Node → the ranks that wait there for their state, and their devices."""

    async def start(self, config: AgentConfig) -> None:
        await super().start(config)
        if config.node_id in self.dead:
            self.prepared.pop(config.node_id, None)
        self.dead.discard(config.node_id)
        if config.node_id in self.killed or config.node_id not in self.generation:
            self.generation[config.node_id] = 0
        self.killed.discard(config.node_id)

    async def kill(self, node_id: str) -> None:
        await super().kill(node_id)
        self._forget(node_id)

    def _forget(self, node_id: str) -> None:
        for mine in (self.held, self.reported, self.running, self.prepared):
            mine.pop(node_id, None)
        self.killed.add(node_id)

    async def intercept(self, node_id: str, method: str, arguments: Sequence[Any]) -> None:
        await super().intercept(node_id, method, arguments)
        if node_id in self.dead:
            raise AgentLostError(node_id, f"agent on {node_id} is lost")
        if method == self.stuck:
            await asyncio.Event().wait()
        if method in self.refuse:
            raise self.error(node_id, self.refuse_kind, self.refuse[method])

    def _is_away(self) -> bool:
        self.away -= 1
        return self.away >= 0

    def _scan_checkpoints(self, node: str) -> CheckpointScan:
        if self._is_away():
            raise self.error(node, AgentErrorKind.STORAGE_UNAVAILABLE, "ConnectionError: no route to storage")
        return CheckpointScan(tuple(self.manifests))

    def _list_shards(self, node: str) -> list[HeldShard]:
        return [self.held[node]] if node in self.held else []

    def _prepare_ranks(self, node: str, joins: Sequence[Join], devices: Sequence[int]) -> None:
        assert self.life is not None
        self.prepared[node] = joins, devices
        for join in joins:
            self.life.receive(node, Prepared(join.rank, join.generation, 1.0))

    def _begin_ranks(self, node: str, generation: int, restore: Restore, holders: Sequence[ShardHolder]) -> Any:
        joins, devices = self.prepared.pop(node, ((), ()))
        if not joins or joins[0].generation != generation:
            raise self.error(node, AgentErrorKind.OTHER, "not prepared")
        return self._form_ranks(node, [replace(join, restore=restore) for join in joins], devices, holders)

    def _discard_ranks(self, node: str, generation: int) -> None:
        if node in self.prepared and self.prepared[node][0][0].generation <= generation:
            del self.prepared[node]

    def _kill_ranks(self, node: str, generation: int) -> DeathProof:
        self._discard_ranks(node, generation)
        self.reported[node], self.running[node] = [], []
        return super()._kill_ranks(node, generation)

    def _status(self, node: str) -> AgentStatus:
        messages = tuple(to_json(message) for message in self.reported.get(node, []))
        running = tuple(self.running.get(node, []))
        prepared = self.prepared[node][0][0].generation if node in self.prepared else 0
        data = {"train": "/d"}
        return AgentStatus(self.generation[node], running, messages=messages, dataset=data, prepared=prepared)

    def _report(self, node: str, message: Message) -> None:
        assert self.life is not None
        rows = [number for number, each in enumerate(self.reported[node]) if isinstance(each, StepRow)]
        if isinstance(message, StepRow) and len(rows) == 2:
            del self.reported[node][rows[-1]]  # an agent keeps the first and the newest row
        self.reported[node].append(message)
        self.life.receive(node, message)

    def _form_ranks(
        self, node: str, joins: Sequence[Join], devices: Sequence[int], holders: Sequence[ShardHolder]
    ) -> None:
        join = joins[0]
        self.joins.append(join)
        if (uri := join.restore.uri) and join.rank == 0 and self._is_away():
            raise self.error(node, AgentErrorKind.STORAGE_UNAVAILABLE, "no route to storage")
        if uri in self.damaged:
            raise self.error(node, AgentErrorKind.STORAGE, f"{uri} is damaged")
        if join.generation not in self.formed:
            self.formed.append(join.generation)
        self.generation[node], self.reported[node], self.running[node] = join.generation, [], [join.rank]
        asyncio.get_running_loop().create_task(self._rank(node, join))

    async def _rank(self, node: str, join: Join) -> None:
        rank, generation, start = join.rank, join.generation, join.restore.step
        assert self.life is not None
        self._report(node, Joined(rank, generation, 1.0))
        self._report(node, Restored(rank, generation, start, 2.0))
        for step in range(start + 1, STEPS + 1):
            await asyncio.sleep(0)
            trouble = self.breaks.get((self.formed.index(generation) + 1, step))
            if trouble is not None:
                if rank == 0 and isinstance(trouble, str):
                    self.dead.add(trouble)
                    self._forget(trouble)
                    self.life._monitor.record_loss(trouble, 3.0)  # type: ignore[union-attr]  # as a missed heartbeat would
                elif rank == 0 and not isinstance(trouble, str):
                    self._report(node, replace(trouble, generation=generation))
                return
            if rank == 0:
                self._report(node, StepRow(generation, step, 3.0, 0.1, 1.0, 8, 4, 0, 0.1, 1.0))
            self.held[node] = HeldShard(rank, 2, generation, step, "h")
        self._report(node, Done(rank, generation, STEPS, False, {"parameters": "p"} if rank == 0 else {}))


def life(nodes: FakeNodes, records: Records, resume: Mapping[str, Any] | None = None) -> tuple[Lifecycle, Journal]:
    payload = JobConfig.from_json({
        "job_id": "j", "spec": parse_spec(SPEC).model_dump(mode="json"), "layout": {"dp_shard": 2},
        "nodes": [{"node_id": f"node-{n}", "name": f"n{n}", "address": "h", "ranks": 1} for n in range(2)],
        "storage_uri": "file:///s", "datasets_uri": "file:///d", "resume": resume,
    })  # fmt: skip
    journal = Journal(records, "j")
    nodes.life = Lifecycle(payload, Gang(nodes, payload.agent_configs()), GenerationLog(records, "j"), journal)
    return nodes.life, journal


async def outcomes(journal: Journal) -> list[tuple[str, Any]]:
    events = await journal.since("", 0, 0)
    return [(event.type, event.data.get("state") or event.data.get("reason")) for event in events
            if event.type in ("state", "incident")]  # fmt: skip


async def run(
    nodes: FakeNodes, records: Records | None = None, resume: Mapping[str, Any] | None = None
) -> tuple[Lifecycle, Journal]:
    made, journal = life(nodes, records or Records(), resume)
    await asyncio.wait_for(made.run(), 20)
    return made, journal


def place(node: str) -> dict[str, Any]:
    """Return a node as the controller describes it to the supervisor."""
    return {"node_id": node, "name": node, "address": "h", "ranks": 1}


class Rig:
    """Lifecycles over the same records, one after the other, as the supervisor's actor has them."""

    def __init__(self, nodes: FakeNodes, spec: Mapping[str, Any] = SPEC, /, **payload: Any) -> None:
        self.nodes, self.records = nodes, Records()
        self.payload = JobConfig.from_json({
            "job_id": "j", "spec": parse_spec(spec).model_dump(mode="json"), "layout": {"dp_shard": 2},
            "nodes": [place(f"node-{n}") for n in range(2)], "storage_uri": "file:///s", "datasets_uri": "file:///d",
            **payload,
        })  # fmt: skip
        self.begin()

    def begin(self) -> None:
        """Start the next lifecycle."""
        self.journal = Journal(self.records, "j")
        gang = Gang(self.nodes, self.payload.agent_configs())
        log = GenerationLog(self.records, "j", self.payload.generations)
        self.life = self.nodes.life = Lifecycle(self.payload, gang, log, self.journal)
        self.running = asyncio.create_task(self.life.run())

    async def wait_for_loss(self, *nodes: str) -> None:
        """Wait until the status lists exactly these nodes as lost."""
        async with asyncio.timeout(10):
            while self.life.status().lost != tuple(sorted(nodes)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def end(self) -> Any:
        """Wait for the end of this lifecycle and return its result."""
        return await asyncio.wait_for(self.running, 20)

    async def events(self, kind: str) -> list[Any]:
        """Return the data of the events of a kind."""
        return [event.data for event in await self.journal.since("", 0, 0) if event.type == kind]
