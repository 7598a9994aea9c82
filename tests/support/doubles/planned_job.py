"""A supervisor over agents in memory whose ranks train until the job moves, ends or gets SIGTERM."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from regroup.service.ports.sync import SupervisorEvent
from regroup.service.spec.job import parse_spec
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.job_state.generations import GenerationLog
from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.service.supervisor.job_state.journal import Journal
from regroup.service.supervisor.lifecycle import Lifecycle
from regroup.workers.contract import agent_records as records
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.held_sets import HeldShard
from regroup.workers.contract.messages import Done, Exited, Join, Joined, Restored, StepRow
from regroup.workers.contract.start_messages import Restore
from tests.support.doubles.memory_records import Records
from tests.support.doubles.supervised_job import SPEC, FakeNodes, place
from tests.support.inputs.sync_records import intents

OLD, NEW = [place("node-0"), place("node-1")], [place("node-0"), place("node-2")]
_STEP_S = 0.005
SCRIPT = {"name": "t", "workload": {"kind": "script", "entrypoint": "/x/train.py"}, "layout": {"dp": 2}}


class TrainingNodes(FakeNodes):
    """Nodes whose ranks train until the supervisor stops them. All ranks stop after the same step."""

    def __init__(self) -> None:
        super().__init__({})
        self.fetched: list[tuple[str, int, Sequence[records.ShardHolder]]] = []
        self.listens = True
        """Ranks stop when the supervisor requests it."""
        self.unfit = ""
        """A node whose agent cannot be prepared."""
        self.faulty = ""
        """A node that fails its preflight check."""
        self.stops: dict[int, tuple[int, bool]] = {}
        """Generation → its last step, and whether the ranks must save it."""
        self.on_stop: Callable[[], object] = lambda: None
        """Called when the ranks learn that they must stop, before they reach their last step."""
        self.on_prepare: Callable[[], object] = lambda: None
        """Called before ranks are prepared on a node."""
        self.on_begin: Callable[[], object] = lambda: None
        """Called when prepared ranks get their state."""
        self.waited: list[Join] = []
        """Messages to the ranks that were prepared."""
        self.ended: set[int] = set()
        self.sigterm = "dies"
        """Reaction of each rank to SIGTERM: `dies`, `exits` with code 0, `fails` with an exception, or `ignores`."""
        self.save_s = 0.0
        """Time that ranks take to save before they react."""
        self.terminated: dict[int, float] = {}
        """Generation → monotonic time of its SIGTERM."""
        self.started_at: dict[str, int] = {}
        """Node → step of the other ranks when its agent was prepared."""
        self.step = 0
        self.unsent = 0
        self.finishes = False
        """Ranks return as after their last step."""
        self.planned_ends: dict[str, str] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.members: dict[int, dict[str, int]] = {}
        """Generation → node → rank."""

    async def planned_end(self, node_id: str) -> str:
        return self.planned_ends.get(node_id, "")

    async def start(self, config: AgentConfig) -> None:
        await super().start(config)
        self.started_at.setdefault(config.node_id, self.step)

    def _run_preflight(self, node: str, request: records.PreflightRequest) -> records.PreflightReport:
        return records.PreflightReport((("device", "core 3 multiplies wrongly"),) if node == self.faulty else ())

    def _start_zygote(self, node: str) -> records.NodeDescription:
        if node == self.unfit:
            raise self.error(node, records.AgentErrorKind.ENVIRONMENT, "no such interpreter")
        return super()._start_zygote(node)

    def _stop_ranks(self, node: str, generation: int, reason: str, save: bool) -> None:
        if self.listens:
            self.stops.setdefault(generation, (self.step + 1, save))
            self.on_stop()

    def _prepare_ranks(self, node: str, joins: Sequence[Join], devices: Sequence[int]) -> None:
        self.on_prepare()
        self.waited += joins
        super()._prepare_ranks(node, joins, devices)

    def _begin_ranks(self, node: str, generation: int, restore: Restore, holders: Sequence[records.ShardHolder]) -> Any:
        self.on_begin()
        return super()._begin_ranks(node, generation, restore, holders)

    def _status(self, node: str) -> records.AgentStatus:
        is_terminating = self.generation[node] in self.terminated
        return replace(super()._status(node), unsent=self.unsent, is_terminating=is_terminating)

    def _terminate_ranks(self, node: str, generation: int) -> None:
        self.terminated.setdefault(generation, time.monotonic())

    def _kill_ranks(self, node: str, generation: int) -> records.DeathProof:
        self.ended.add(generation)
        return super()._kill_ranks(node, generation)

    def _form_ranks(
        self, node: str, joins: Sequence[Join], devices: Sequence[int], holders: Sequence[records.ShardHolder]
    ) -> None:
        join = joins[0]
        self.fetched.append((node, join.generation, holders))
        self.members.setdefault(join.generation, {})[node] = join.rank
        self.generation[node], self.reported[node], self.running[node] = join.generation, [], [join.rank]
        self.tasks.append(asyncio.get_running_loop().create_task(self._rank(node, join)))

    async def _rank(self, node: str, join: Join) -> None:
        rank, generation, step = join.rank, join.generation, join.restore.step
        self._report(node, Joined(rank, generation, 1.0))
        self._report(node, Restored(rank, generation, step, 2.0))
        while step < self.stops.get(generation, (10**9, False))[0]:
            await asyncio.sleep(_STEP_S)
            if generation in self.ended or node in self.dead:
                return
            if self._reacts(generation):
                self._end_after_sigterm(node, rank, generation, step)
                return
            if self.finishes:
                self._report(node, Done(rank, generation, step, stopped=False))
                return
            step += 1
            self.step = max(self.step, step)
            if rank == 0:
                self._report(node, StepRow(generation, step, time.time(), 0.1, 1.0, 8, 4, 0, 0.1, 1.0))
                # Agents retain two snapshots of each rank, so one step is always complete. Here it is the newest.
                for member, local in self.members[generation].items():
                    self.held[member] = HeldShard(local, 2, generation, step, "h")
        self._report(node, Done(rank, generation, step, stopped=True))
        self.running[node] = []
        self._report(node, Exited(rank, generation, 0, time.time()))

    def _reacts(self, generation: int) -> bool:
        since_s = self.terminated.get(generation)
        return since_s is not None and self.sigterm != "ignores" and time.monotonic() >= since_s + self.save_s

    def _end_after_sigterm(self, node: str, rank: int, generation: int, step: int) -> None:
        """End as an agent reports it: without the exception, and stopped."""
        self.running[node] = []
        code = {"dies": -15, "exits": 0, "fails": 1}[self.sigterm]
        if code == 0:
            self._report(node, Done(rank, generation, step, stopped=True))
        self._report(node, Exited(rank, generation, code, time.time(), terminated=True))


class PlannedRig:
    """Supervisors that run one after another with the same records, as in the supervisor's actor."""

    def __init__(self, spec: Mapping[str, Any] = SPEC, /, **payload: Any) -> None:
        self.nodes, self.records = TrainingNodes(), Records()
        self.payload = JobConfig.from_json({
            "job_id": "j", "spec": parse_spec(spec).model_dump(mode="json"), "layout": {"dp_shard": 2},
            "nodes": OLD, "storage_uri": "file:///s", "datasets_uri": "file:///d", **payload,
        })  # fmt: skip
        self.emitted: list[SupervisorEvent] = []
        """Events of all supervisors."""
        self.begin()

    def begin(self, gang: Gang | None = None) -> None:
        """Start the next supervisor. Without the gang of the previous one, it starts in a new process."""
        self.gang = gang or Gang(self.nodes, self.payload.agent_configs())
        self.journal = Journal(self.records, "j", on_event=self.emitted.append)
        self.life = self.nodes.life = Lifecycle(self.payload, self.gang, GenerationLog(self.records, "j"), self.journal)
        self.running = asyncio.create_task(self.life.run())

    async def until(self, condition: Any) -> Any:
        async with asyncio.timeout(10):
            while not (found := condition()):  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        return found

    async def wait_for_steps(self, generation: int = 1, steps: int = 3) -> None:
        at = self.nodes.step + steps
        await self.until(lambda: self.nodes.generation.get("node-0") == generation and self.nodes.step >= at)

    def drain(self, within_s: float | None = 60.0, is_requeue: bool = False, noticed_s: float | None = None) -> None:
        now_s = time.time() if noticed_s is None else noticed_s
        deadline_s = None if within_s is None else now_s + within_s
        drain = {"leaving": {"node-1": "n1"}, "why": "node n1 is drained: disks", "noticed_s": now_s,
                 "deadline_s": deadline_s, "is_requeue": is_requeue}  # fmt: skip
        self.life.set_intents(intents(change=drain, nodes=[] if is_requeue else NEW))

    async def relocate(self) -> Any:
        """Wait until the supervisor ends with a relocation, and start the next one on the new nodes."""
        relocated = await asyncio.wait_for(self.running, 20)
        self.payload = self.payload.with_nodes(relocated.nodes, relocated.layout)
        self.begin(self.gang.with_configs(self.payload.agent_configs(), relocated.former))
        return relocated

    def events(self, kind: str) -> list[Any]:
        found = self.records.data.items()
        events = sorted(
            (json.loads(value) for key, value in found if key.startswith("event/")), key=lambda e: e["time_s"]
        )
        return [event["data"] for event in events if event["type"] == kind]

    def notes(self) -> list[Any]:
        """Return the notes of all supervisors."""
        return [event.data for event in self.emitted if event.type == "note"]

    def states(self) -> list[tuple[str, str]]:
        return [(data["state"], data["reason"]) for data in self.events("state")]
