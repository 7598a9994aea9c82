"""Script jobs, with in-memory agents. They have no data and no snapshots, and number their steps themselves."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from regroup.service.domain.job_events import IncidentRevised, decode
from regroup.service.ports.agents import AgentLostError
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.spec.job import parse_spec
from regroup.service.supervisor import gang_setup as setup
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.job_state.generations import GenerationLog
from regroup.service.supervisor.job_state.incidents import Incident
from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.service.supervisor.job_state.journal import Journal
from regroup.service.supervisor.lifecycle import Lifecycle
from regroup.workers.contract.activity_report import ActivityReport, RankRecord, pack
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import RankInspection, ShardHolder
from regroup.workers.contract.messages import (
    AgentReport,
    Done,
    Exited,
    Failed,
    Join,
    Joined,
    Message,
    Restored,
    StepRow,
)
from regroup.workers.contract.rank_activity import RankActivity
from regroup.workers.contract.rank_error import ErrorClass, RankError
from tests.support.doubles.fake_agents import FakeAgents
from tests.support.doubles.memory_records import Records

KILLED = Exited(1, 1, -9, 5.0)
FAILED = Failed(1, 1, RankError(ErrorClass.USER, "SystemExit", "the script exited with code 3", "", 0, "", 5.0))


class Nodes(FakeAgents):
    """Two agents of one rank each. `messages[g]` has the messages of generation g after `Joined`."""

    def __init__(self, messages: Mapping[int, list[Message]]) -> None:
        super().__init__()
        self.messages = messages
        self.life: Lifecycle | None = None
        self.joins: list[Join] = []
        self.stacks: dict[str, dict[int, RankInspection]] = {}
        self.gone: set[str] = set()
        """Nodes whose agents do not start."""

    async def start(self, config: AgentConfig) -> None:
        self.config = config

    async def kill(self, node_id: str) -> None:
        self.calls.append("kill")

    async def intercept(self, node_id: str, method: str, arguments: Sequence[Any]) -> None:
        self.calls.append(method)
        if method == "start_zygote" and node_id in self.gone:
            raise AgentLostError(node_id, "gone")

    def _inspect_ranks(self, node: str) -> dict[int, RankInspection]:
        return self.stacks.get(node, {})

    def _form_ranks(
        self, node: str, joins: Sequence[Join], devices: Sequence[int], holders: Sequence[ShardHolder]
    ) -> None:
        (join,) = joins
        self.joins.append(join)
        asyncio.get_running_loop().create_task(self._rank(node, join))

    async def _rank(self, node_id: str, join: Join) -> None:
        assert self.life is not None
        rank, generation = join.rank, join.generation
        self.life.receive(node_id, Joined(rank, generation, 1.0))
        for message in self.messages[generation]:
            await asyncio.sleep(0.01)
            if getattr(message, "rank", 0) == rank:
                self.life.receive(node_id, message)


def row(generation: int, step: int) -> StepRow:
    return StepRow(generation, step, 3.0, 0.1, None, None, None, None, 0.1, None)


def ended(generation: int, step: int) -> list[Message]:
    return [Done(rank, generation, step, stopped=False) for rank in range(2)]


async def run(nodes: Nodes, **fields: Any) -> list[SupervisorEvent]:
    spec = {"name": "t", "workload": {"kind": "script", "entrypoint": "/x.py"}, "layout": {"dp": 2}, **fields}
    payload = JobConfig.from_json({
        "job_id": "j", "spec": parse_spec(spec).model_dump(mode="json"), "layout": {"dp_shard": 2},
        "nodes": [{"node_id": f"node-{n}", "name": f"n{n}", "address": "h", "ranks": 1} for n in range(2)],
        "storage_uri": "file:///s", "datasets_uri": "file:///d",
    })  # fmt: skip
    records = Records()
    journal = Journal(records, "j")
    nodes.life = Lifecycle(payload, Gang(nodes, payload.agent_configs()), GenerationLog(records, "j"), journal)
    await asyncio.wait_for(nodes.life.run(), 20)
    return await journal.since("", 0, 0)


def is_restorable(incident: Mapping[str, Any]) -> bool:
    """Return whether a restarted supervisor restores the incident as it was."""
    event = decode("incident", incident)
    assert isinstance(event, IncidentRevised)
    return Incident.from_event(event).to_event() == event


def states(events: list[SupervisorEvent]) -> list[tuple[str, str]]:
    return [(event.data["state"], event.data["reason"]) for event in events if event.type == "state"]


async def test_a_script_that_reports_no_step_runs_and_succeeds() -> None:
    nodes = Nodes({1: ended(1, 0)})
    events = await run(nodes)
    assert states(events) == [("STARTING", "reserved"), ("RUNNING", "script_started"), ("SUCCEEDED", "completed")]
    assert set(nodes.calls) == {"status", "start_zygote", "check_storage", "start_store", "form_ranks", "kill_ranks"}
    assert {join.entry for join in nodes.joins} == {"script:/x.py"}
    assert {join.node_name for join in nodes.joins} == {"n0", "n1"}
    assert nodes.config.warmup == {} and "regroup.workers.train.trainer" not in nodes.config.preload


async def test_a_restarted_script_reports_its_step_and_the_cost_is_computed() -> None:
    first: list[Message] = [Restored(0, 1, 0, 2.0), *(row(1, step) for step in (1, 2, 3, 4)), KILLED]
    second: list[Message] = [Restored(0, 2, 2, 6.0), Restored(1, 2, 2, 6.0), row(2, 3), row(2, 4), *ended(2, 4)]
    nodes = Nodes({1: first, 2: second})
    events = await run(nodes)
    assert states(events)[-1] == ("SUCCEEDED", "completed")
    assert "list_shards" not in nodes.calls and "scan_checkpoints" not in nodes.calls
    assert [event.data["start_step"] for event in events if event.type == "generation"] == [0, 4]
    assert [event.data["step"] for event in events if event.type == "resumed"] == [0, 2]
    incident = [event.data for event in events if event.type == "incident"][-1]
    assert (incident["recovery_action"], incident["at_step"], incident["steps_lost"]) == ("respawn", 4, 2)
    assert {"form", "restore", "first_step", "total"} <= set(incident["durations"])


async def test_lost_steps_are_unknown_if_the_script_has_no_step_count() -> None:
    nodes = Nodes({1: [row(1, 1), KILLED], 2: [Restored(0, 2, 1, 6.0, has_step_count=False), row(2, 2), *ended(2, 2)]})
    events = await run(nodes)
    incident = [event.data for event in events if event.type == "incident"][-1]
    assert incident["steps_lost"] is None


async def test_an_early_first_step_hides_no_phase_of_the_recovery() -> None:
    second: list[Message] = [Restored(0, 2, 1, 6.0), row(2, 2), Restored(1, 2, 1, 6.0), *ended(2, 2)]
    events = await run(Nodes({1: [row(1, 1), KILLED], 2: second}))
    incident = [event.data for event in events if event.type == "incident"][-1]
    assert {"form", "restore", "first_step", "total"} <= set(incident["durations"])


async def test_a_user_error_is_retried_only_within_its_budget() -> None:
    messages = {1: [FAILED], 2: ended(2, 0)}
    failed = await run(Nodes(messages))
    assert states(failed)[-1] == ("FAILED", "user_error")
    assert failed[-1].data["message"] == "rank 1: SystemExit: the script exited with code 3"
    again = await run(Nodes(messages), recovery={"budgets": {"user_error": 1}})
    assert states(again)[-1] == ("SUCCEEDED", "completed")
    assert [event.data["cause"] for event in again if event.type == "generation"] == ["start", "user_error"]


def report(node: str, generation: int, **activities: RankActivity) -> AgentReport:
    records = pack(RankRecord(int(rank.removeprefix("r")), True, each) for rank, each in activities.items())
    return AgentReport(node, "boot", generation, (0,), (), ActivityReport(records=records))


async def test_hung_ranks_are_inspected_and_then_restarted() -> None:
    nodes = Nodes({1: [row(1, 1)], 2: ended(2, 0)})
    text = "Thread 0\n" * 999 + "File x in sleep\n"
    nodes.stacks = {"node-1": {1: RankInspection("n1", 7, (2, "forward"), text)}}
    running = asyncio.create_task(run(nodes, recovery={"hang": {"after": "5s"}}))
    while nodes.life is None or nodes.life.status().step != 1:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    moving, stuck = RankActivity(2, "forward", 4.0, 4.0, 1, 0.0), RankActivity(1, "optimizer", 30.0, 30.0, 1, 0.0)
    nodes.life.receive_report(report("node-0", 1, r0=moving))
    nodes.life.receive_report(report("node-1", 1, r1=stuck))
    await asyncio.sleep(1)
    assert "inspect_ranks" not in nodes.calls, "rank 0 makes progress"
    nodes.life.receive_report(report("node-0", 1, r0=replace(moving, stalled_s=5.5, idle_s=5.5)))
    events = await running
    assert states(events)[2:] == [("RECOVERING", "hang"), ("RUNNING", "script_started"), ("SUCCEEDED", "completed")]
    assert nodes.calls.index("inspect_ranks") < nodes.calls.index("kill_ranks")
    incident = [event.data for event in events if event.type == "incident"][-1]
    assert (incident["reason"], incident["rank"], incident["node_id"]) == ("hang", 1, "node-1")
    assert incident["cause"].endswith("; rank 1 stands out: step 1, optimizer")
    stack = incident["evidence"]["ranks"]["1"]["stack"]
    assert len(stack) == 4000 and stack.endswith("Thread 0\nFile x in sleep\n"), "the main thread is written last"
    assert is_restorable(incident)
    assert incident["times"]["ended_s"] >= incident["times"]["formed_s"], "the rank completes no further step"


def in_all_reduce(count: int) -> dict[str, Any]:
    return {
        "group": "0", "first_rank": 0, "title": "default_pg", "sequence": 7, "name": "all_reduce", "shapes": [[count]],
        "types": ["Float"], "is_over": False,
    }  # fmt: skip


async def test_ranks_in_different_collectives_fail_the_job_without_a_retry() -> None:
    nodes = Nodes({1: [row(1, 1)], 2: ended(2, 0)})
    for rank in range(2):
        entered = [in_all_reduce(8 + rank)]
        nodes.stacks[f"node-{rank}"] = {rank: RankInspection(f"n{rank}", 7, (2, "forward"), "in all_reduce\n", entered)}
    running = asyncio.create_task(run(nodes, recovery={"hang": {"after": "5s"}}))
    while nodes.life is None or nodes.life.status().step != 1:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    stuck = RankActivity(2, "forward", 30.0, 30.0, 1, 0.0)
    nodes.life.receive_report(report("node-0", 1, r0=stuck))
    nodes.life.receive_report(report("node-1", 1, r1=stuck))
    events = await running
    assert states(events)[-1] == ("FAILED", "desync") and nodes.calls.count("start_store") == 1
    incident = [event.data for event in events if event.type == "incident"][-1]
    assert (incident["reason"], incident["recovery_action"]) == ("desync", "fail")
    theirs = "rank 0 into all_reduce of 8 Float, rank 1 into all_reduce of 9 Float"
    where = "collective 7 of group default_pg; no rank made progress for 30 s"
    assert incident["cause"] == f"ranks entered different collectives: {theirs}, as {where}"
    assert incident["evidence"]["ranks"]["1"]["collective"].startswith("all_reduce of 9 Float, number 7 of")
    assert is_restorable(incident)


async def lose(nodes: Nodes, node: str) -> None:
    """Report the loss of a node after the first step."""
    while nodes.life is None or nodes.life.status().step != 1:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    monitor = nodes.life._monitor
    assert monitor is not None
    monitor.record_loss(node, 5.0)


async def test_a_lost_node_delays_the_requeue_until_its_ranks_cannot_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "FENCE_S", 1.2)
    monkeypatch.setattr(setup, "GANG_TIMEOUT_S", 0.1)
    nodes = Nodes({1: [row(1, 1)]})
    running = asyncio.create_task(run(nodes))
    await lose(nodes, "node-1")
    nodes.gone.add("node-1")
    began = time.monotonic()
    events = await running
    assert time.monotonic() - began >= 1.2
    assert states(events)[-2:] == [("RECOVERING", "agent_lost"), ("QUEUED", "requeued")]
    phases = [event.data["message"] for event in events if event.type == "phase" and event.data["phase"] == "fence"]
    assert phases == ["waiting 1 s: ranks on n1 may still write files"]


async def test_a_restarted_agent_proves_that_no_rank_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "FENCE_S", 3600.0)
    nodes = Nodes({1: [row(1, 1)], 2: ended(2, 0)})
    running = asyncio.create_task(run(nodes))
    await lose(nodes, "node-1")
    assert states(await running)[-1] == ("SUCCEEDED", "completed")
