"""Planned relocation. Substitutes are prepared while the job trains, and its ranks stop at a step to move there."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from regroup.service.spec.job import parse_spec
from regroup.service.supervisor.gang import Gang
from regroup.service.supervisor.generations import GenerationLog
from regroup.service.supervisor.job_config import JobConfig
from regroup.service.supervisor.journal import Journal
from regroup.service.supervisor.lifecycle import Lifecycle
from regroup.workers.contract import agent_records as records
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.messages import Done, Exited, Join, Joined, Restored, StepRow, VerifiedShard
from tests.support.doubles.memory_records import Records
from tests.support.doubles.supervised_job import SPEC, FakeNodes, place
from tests.support.inputs.sync_records import assigned, intents

OLD, NEW = [place("node-0"), place("node-1")], [place("node-0"), place("node-2")]
_STEP_S = 0.005


class Nodes(FakeNodes):
    """Nodes whose ranks train until the supervisor stops them. All ranks stop after the same step."""

    def __init__(self) -> None:
        super().__init__({})
        self.fetched: list[tuple[str, int, dict[int, records.TransferAddress]]] = []
        self.listens = True
        """Ranks stop when the supervisor requests it."""
        self.unfit = ""
        """A node whose agent cannot be prepared."""
        self.faulty = ""
        """A node that fails its preflight check."""
        self.stops: dict[int, tuple[int, bool]] = {}
        """Generation → its last step, and whether the ranks must save it."""
        self.ended: set[int] = set()
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

    def _status(self, node: str) -> records.AgentStatus:
        return replace(super()._status(node), unsent=self.unsent)

    def _kill_ranks(self, node: str, generation: int) -> records.DeathProof:
        self.ended.add(generation)
        return super()._kill_ranks(node, generation)

    def _form_ranks(
        self, node: str, joins: Sequence[Join], devices: Sequence[int], holders: dict[int, records.TransferAddress]
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
            if self.finishes:
                self._report(node, Done(rank, generation, step, stopped=False))
                return
            step += 1
            self.step = max(self.step, step)
            if rank == 0:
                self._report(node, StepRow(generation, step, time.time(), 0.1, 1.0, 8, 4, 0, 0.1, 1.0))
                # Agents retain two snapshots of each rank, so one step is always complete. Here it is the newest.
                for member, local in self.members[generation].items():
                    self.held[member] = VerifiedShard(local, 2, generation, step, "h", 1)
        self._report(node, Done(rank, generation, step, stopped=True))
        self.running[node] = []
        self._report(node, Exited(rank, generation, 0, time.time()))


class Rig:
    """Supervisors that run one after another with the same records, as in the supervisor's actor."""

    def __init__(self, spec: Mapping[str, Any] = SPEC, /, **payload: Any) -> None:
        self.nodes, self.records = Nodes(), Records()
        self.payload = JobConfig.from_json({
            "job_id": "j", "spec": parse_spec(spec).model_dump(mode="json"), "layout": {"dp_shard": 2},
            "nodes": OLD, "storage_uri": "file:///s", "datasets_uri": "file:///d", **payload,
        })  # fmt: skip
        self.begin()

    def begin(self, gang: Gang | None = None) -> None:
        """Start the next supervisor. Without the gang of the previous one, it starts in a new process."""
        self.gang, self.journal = gang or Gang(self.nodes, self.payload.agent_configs()), Journal(self.records, "j")
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

    def states(self) -> list[tuple[str, str]]:
        return [(data["state"], data["reason"]) for data in self.events("state")]


SCRIPT = {"name": "t", "workload": {"kind": "script", "entrypoint": "/x/train.py"}, "layout": {"dp": 2}}


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> AsyncGenerator[Rig]:
    made = Rig(getattr(request, "param", SPEC), preflight=True)
    yield made
    for task in (made.running, *made.nodes.tasks):
        while not task.done():
            task.cancel()  # A wait whose result has just arrived ignores one cancellation.
            await asyncio.sleep(0)


async def test_a_job_leaves_a_drained_node_without_losing_a_step(rig: Rig) -> None:
    await rig.wait_for_steps()
    rig.drain()
    relocated = await rig.relocate()
    assert relocated.nodes == assigned(NEW) and relocated.former == {"node-1": "n1"}
    last, save = rig.nodes.stops[1]
    assert not save and rig.nodes.started_at["node-2"] <= last, "the substitute was prepared during training"
    await rig.wait_for_steps(generation=2)
    address = records.TransferAddress("node-1", 1, "t")
    assert rig.nodes.fetched[2:] == [("node-0", 2, {}), ("node-2", 2, {1: address})], (
        "state comes from the drained node"
    )
    (formed,) = [data for data in rig.events("generation") if data["number"] == 2]
    assert (formed["start_step"], formed["cause"]) == (last, "drained")
    incident = rig.events("incident")[-1]
    assert (incident["reason"], incident["recovery_action"], incident["at_step"], incident["steps_lost"]) == (
        "drained", "spare", last, 0,
    )  # fmt: skip
    assert incident["evidence"]["nodes"] == ["n1"] and "first_step_s" in incident["times"]
    assert rig.states()[1:] == [("RUNNING", "first_step"), ("RESIZING", "drained"), ("RUNNING", "first_step")]


async def test_a_former_node_is_released_after_the_first_step_and_its_last_message(rig: Rig) -> None:
    await rig.wait_for_steps()
    rig.drain()
    rig.nodes.unsent = 3
    await rig.relocate()
    await rig.wait_for_steps(generation=2, steps=50)
    assert rig.life.status().former == ("node-1",), "the former node has unsent messages"
    rig.nodes.unsent = 0
    await rig.until(lambda: not rig.life.status().former)
    shut = rig.nodes.calls.index(("node-1", "shutdown"))
    assert rig.nodes.calls.index(("node-2", "form_ranks")) < shut < rig.nodes.calls.index(("node-1", "kill"))
    await rig.wait_for_steps(generation=2, steps=10)
    assert not rig.running.done(), "the end of its heartbeats is not a loss"


@pytest.mark.parametrize("rig", [SCRIPT], indirect=True)
async def test_a_script_is_killed_when_the_substitute_is_ready(rig: Rig) -> None:
    """Fetch nothing and wait for no step: a script agrees on no step and saves its own state."""
    await rig.wait_for_steps()
    rig.drain()
    await rig.relocate()
    assert rig.nodes.stops == {} and 1 in rig.nodes.ended and ("node-2", "start_zygote") in rig.nodes.calls
    await rig.until(lambda: not rig.life.status().former)
    await rig.wait_for_steps(generation=2)
    assert [holders for _, generation, holders in rig.nodes.fetched if generation == 2] == [{}, {}]
    assert rig.events("incident")[-1]["reason"] == "drained"
    assert ("RESIZING", "drained") in rig.states()


async def test_the_job_ends_after_the_last_message_of_the_former_node(rig: Rig) -> None:
    await rig.wait_for_steps()
    rig.nodes.unsent = 3
    rig.drain()
    await rig.relocate()
    await rig.wait_for_steps(generation=2)
    rig.nodes.finishes = True
    await rig.until(lambda: rig.life._monitor and rig.life._monitor.is_complete)  # pyright: ignore[reportPrivateUsage]
    assert rig.life.status().former and rig.states()[-1] == ("RUNNING", "first_step")
    rig.nodes.unsent = 0
    assert await asyncio.wait_for(rig.running, 20) is None
    assert rig.states()[-1] == ("SUCCEEDED", "completed")


async def test_a_planned_relocation_is_charged_to_no_budget(rig: Rig) -> None:
    """Charge nothing in the current supervisor or after a replay. The budgets of this job allow two failures."""
    for nodes, generation in ((NEW, 2), (OLD, 3), (NEW, 4), (OLD, 5)):
        await rig.wait_for_steps(generation - 1)
        leaving = {"node-1": "n1"} if nodes is NEW else {"node-2": "n2"}
        drain = {"leaving": leaving, "why": "w", "noticed_s": time.time(), "deadline_s": None, "is_requeue": False}
        rig.life.set_intents(intents(change=drain, nodes=nodes))
        await rig.relocate()
    await rig.wait_for_steps(generation=5)
    newest = {data["id"]: data["recovery_action"] for data in rig.events("incident") if "first_step_s" in data["times"]}
    assert list(newest.values()) == ["spare"] * 4


async def test_an_unready_substitute_does_not_stop_training(rig: Rig) -> None:
    rig.nodes.unfit = "node-2"
    await rig.wait_for_steps()
    rig.drain()
    unready = await rig.until(lambda: rig.life.status().unready)
    assert unready.nodes == ("node-0", "node-2") and "no such interpreter" in unready.why
    await rig.wait_for_steps(steps=10)
    assert rig.nodes.stops == {}
    rig.life.set_intents(intents())
    await rig.until(lambda: not rig.life.status().unready)
    await rig.wait_for_steps()


async def test_a_substitute_that_computes_wrongly_fails_its_preflight_check(rig: Rig) -> None:
    rig.nodes.faulty = "node-2"
    await rig.wait_for_steps()
    rig.drain()
    unready = await rig.until(lambda: rig.life.status().unready)
    assert unready.nodes == ("node-0", "node-2") and "core 3 multiplies wrongly" in unready.why
    notes = [event.data for event in await rig.journal.since("", 0, 0) if event.type == "note"]
    (fault,) = [data for data in notes if "fault" in data]
    assert (fault["kind"], fault["node"], fault["fault"]) == ("preflight", "node-2", "preflight")
    await rig.wait_for_steps(steps=10)
    assert rig.nodes.stops == {}


async def test_completed_preparations_are_not_repeated_after_the_stop(rig: Rig) -> None:
    await rig.wait_for_steps()
    rig.drain()
    await rig.until(lambda: ("node-2", "run_preflight") in rig.nodes.calls)
    await rig.relocate()
    before = len(rig.nodes.calls)
    await rig.wait_for_steps(generation=2)
    methods = {method for _, method in rig.nodes.calls[before:]}
    assert "form_ranks" in methods
    assert not methods & {"start", "start_zygote", "check_storage", "list_sources", "fetch_data", "run_preflight"}


async def test_an_agent_that_died_after_its_preparation_is_started_again(rig: Rig) -> None:
    await rig.wait_for_steps()
    rig.drain()
    relocated = await asyncio.wait_for(rig.running, 20)
    rig.nodes.dead.add("node-2")
    rig.payload = rig.payload.with_nodes(relocated.nodes, relocated.layout)
    before = len(rig.nodes.calls)
    rig.begin(rig.gang.with_configs(rig.payload.agent_configs(), relocated.former))
    await rig.wait_for_steps(generation=2)
    methods = [method for node, method in rig.nodes.calls[before:] if node == "node-2"]
    assert methods[:2] == ["status", "start"] and {"start_zygote", "run_preflight"} <= set(methods)
    assert ("node-0", "start") not in rig.nodes.calls[before:]


async def test_ranks_that_miss_the_deadline_are_killed_and_the_loss_is_reported(rig: Rig) -> None:
    await rig.wait_for_steps()
    rig.nodes.listens = False
    rig.drain(within_s=0.4)
    await rig.relocate()
    reached = rig.nodes.step
    await rig.wait_for_steps(generation=2)
    incident = rig.events("incident")[-1]
    (formed,) = [data for data in rig.events("generation") if data["number"] == 2]
    assert incident["reason"] == "drained" and incident["steps_lost"] == incident["at_step"] - formed["start_step"]
    assert 0 <= incident["steps_lost"] <= 1 and formed["start_step"] >= reached - 1


async def test_without_a_substitute_the_job_saves_its_last_step_and_queues(rig: Rig) -> None:
    await rig.wait_for_steps()
    rig.drain(is_requeue=True)
    assert await asyncio.wait_for(rig.running, 20) is None
    last, save = rig.nodes.stops[1]
    assert save and rig.events("incident")[-1]["at_step"] == last
    assert rig.states()[-1] == ("QUEUED", "drained")
    assert "disks" in rig.events("state")[-1]["message"]


async def test_an_early_departure_of_a_drained_node_is_not_a_failure(rig: Rig) -> None:
    rig.nodes.unfit = "node-2"
    await rig.wait_for_steps()
    rig.drain()
    await rig.until(lambda: rig.life.status().unready)
    rig.nodes.unfit = ""
    rig.nodes.dead.add("node-1")
    rig.nodes.held.pop("node-1")
    assert rig.life._monitor is not None  # pyright: ignore[reportPrivateUsage]
    rig.life._monitor.record_loss("node-1", time.time())  # pyright: ignore[reportPrivateUsage]  # instead of the liveness monitor
    relocated = await rig.relocate()
    assert relocated.former == {}, "the removed node has no shards"
    await rig.wait_for_steps(generation=2, steps=1)
    incident = rig.events("incident")[-1]
    assert incident["reason"] == "drained" and "the node was removed before the job left it" in incident["cause"]
    assert incident["steps_lost"] == incident["at_step"], "there was no mirror and no checkpoint"


@pytest.mark.parametrize(
    ("message", "reason"), [("node n1 has ended: received SIGTERM", "drained"), ("", "agent_lost")]
)
async def test_a_planned_end_of_a_node_is_not_a_failure(rig: Rig, message: str, reason: str) -> None:
    await rig.wait_for_steps()
    rig.nodes.planned_ends["node-1"] = message
    rig.nodes.dead.add("node-1")
    assert rig.life._monitor is not None  # pyright: ignore[reportPrivateUsage]
    rig.life._monitor.record_loss("node-1", time.time())  # pyright: ignore[reportPrivateUsage]  # instead of the liveness monitor
    incident = (await rig.until(lambda: rig.events("incident")))[-1]
    assert incident["reason"] == reason and message in incident["cause"]


async def test_a_restarted_supervisor_uses_the_nodes_of_the_last_relocation(rig: Rig) -> None:
    """Start with the nodes of the start configuration, but start no agents on nodes that the job has left."""
    await rig.wait_for_steps()
    rig.drain()
    await asyncio.wait_for(rig.running, 20)
    calls = len(rig.nodes.calls)
    rig.begin()
    relocated = await rig.relocate()
    assert relocated.is_recorded and relocated.nodes == assigned(NEW) and relocated.former == {"node-1": "n1"}
    assert rig.nodes.calls[calls:] == []
    await rig.wait_for_steps(generation=2)
    assert rig.events("incident")[-1]["steps_lost"] == 0
    assert len(rig.events("relocated")) == 1


async def test_a_drain_cancelled_after_the_stop_resumes_on_the_same_nodes(rig: Rig) -> None:
    await rig.wait_for_steps()
    rig.nodes.unfit = "node-2"
    # Near the deadline, ranks stop even if no substitute is ready.
    rig.drain(within_s=60.0, noticed_s=time.time() - 42.0)
    await rig.until(lambda: rig.nodes.stops)
    rig.life.set_intents(intents())
    await rig.wait_for_steps(generation=2)
    assert rig.events("incident")[-1]["steps_lost"] == 0
    assert [node for node, generation, _ in rig.nodes.fetched if generation == 2] == ["node-0", "node-1"]


async def test_a_failure_during_a_drain_recovers_on_the_new_nodes_if_ready(rig: Rig) -> None:
    await rig.wait_for_steps()
    rig.nodes.listens = False
    rig.drain()
    await rig.until(lambda: ("node-0", "stop_ranks") in rig.nodes.calls)
    rig.life.receive("node-0", Exited(0, 1, -9, time.time()))
    relocated = await rig.relocate()
    assert relocated.nodes == assigned(NEW)
    await rig.wait_for_steps(generation=2)
    incident = rig.events("incident")[-1]
    assert (incident["reason"], incident["recovery_action"]) == ("rank_exit", "spare")
