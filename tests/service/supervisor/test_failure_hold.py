"""The hold of a failed job, with in-memory agents and records, and a restart of the supervisor."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from regroup.service.ports.agents import AgentLostError
from regroup.service.spec.job import parse_spec
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.job_state.generations import GenerationLog
from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.service.supervisor.job_state.journal import Journal
from regroup.service.supervisor.lifecycle import Lifecycle
from regroup.workers.contract.agent_records import RankInspection, ShardHolder
from regroup.workers.contract.messages import Exited, Failed, Join, Joined, Message
from regroup.workers.contract.rank_error import ErrorClass, RankError
from tests.support.doubles.fake_agents import FakeAgents
from tests.support.doubles.memory_records import Records
from tests.support.inputs.sync_records import intents

BAD = Failed(1, 1, RankError(ErrorClass.USER, "ValueError", "bad", "Traceback …", 3, "forward", 5.0))


class Nodes(FakeAgents):
    """Two agents of a script with one rank each. The second rank emits `message` when it is formed."""

    def __init__(self, message: Message) -> None:
        super().__init__()
        self.message = message
        self.life: Lifecycle | None = None
        self.gone = False

    async def kill(self, node_id: str) -> None:
        raise AssertionError("no agent is lost")

    async def intercept(self, node_id: str, method: str, arguments: Sequence[Any]) -> None:
        self.calls.append(method)
        if self.gone:
            raise AgentLostError(node_id, "gone")

    def _form_ranks(
        self, node: str, joins: Sequence[Join], devices: Sequence[int], holders: Sequence[ShardHolder]
    ) -> None:
        if node == "node-1":
            assert self.life is not None
            asyncio.get_running_loop().call_soon(self.life.receive, node, self.message)

    def _inspect_ranks(self, node: str) -> dict[int, RankInspection]:
        return {int(node[-1]): RankInspection(node, 1, None, "in the loop")}


def life(
    nodes: Nodes, records: Records, hold_on_failure: str | None = "10m", *, rank_exits: int = 0
) -> tuple[Lifecycle, Journal]:
    spec = parse_spec({
        "name": "t", "workload": {"kind": "script", "entrypoint": "/train.py"}, "layout": {"dp": 2},
        "recovery": {"budgets": {"rank_exit": rank_exits}}, "hold_on_failure": hold_on_failure,
    })  # fmt: skip
    payload = JobConfig.from_json({
        "job_id": "j", "spec": spec.model_dump(mode="json"), "layout": {"dp_shard": 2},
        "nodes": [{"node_id": f"node-{n}", "name": f"n{n}", "address": "h", "ranks": 1} for n in range(2)],
        "storage_uri": "file:///s", "datasets_uri": "file:///d",
    })  # fmt: skip
    journal = Journal(records, "j")
    nodes.life = Lifecycle(payload, Gang(nodes, payload.agent_configs()), GenerationLog(records, "j"), journal)
    return nodes.life, journal


async def events(journal: Journal, kind: str = "state") -> list[Mapping[str, Any]]:
    return [event.data for event in await journal.since("", 0, 0) if event.type == kind]


async def run_until_held(made: Lifecycle) -> "asyncio.Task[None]":
    """Run until the job is on hold."""
    running = asyncio.ensure_future(made.run())
    async with asyncio.timeout(10):
        while made.status().phase != "held":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return running


async def test_a_failed_job_is_held_with_its_evidence_until_it_is_released() -> None:
    nodes = Nodes(BAD)
    made, journal = life(nodes, Records())
    running = await run_until_held(made)
    ended = ["kill_ranks", "kill_ranks", "upload_evidence", "upload_evidence"]
    assert nodes.calls[-4:] == ended, "ranks are killed and evidence is uploaded before the hold"
    (data,) = await events(journal, "held")
    assert (data["reason"], data["error"]["kind"]) == ("user_error", "ValueError")
    assert data["stacks"]["0"]["text"] == "in the loop"
    states = [state["state"] for state in await events(journal)]
    assert states[-1] == "DRAINING" and "; its nodes are kept until 20" in (await events(journal))[-1]["message"]
    made.set_intents(intents(end={"reason": "max_duration", "message": "too long"}))
    await asyncio.sleep(0)
    assert not running.done(), "max_duration does not end the hold"
    made.set_intents(intents(release=True))
    await asyncio.wait_for(running, 5)
    last = (await events(journal))[-1]
    assert (last["state"], last["reason"], last["error"]["message"]) == ("FAILED", "user_error", "bad")
    assert last["message"] == "rank 1: ValueError: bad"


async def test_ranks_are_inspected_if_a_consequence_is_reported_before_the_cause() -> None:
    lost_contact = RankError(ErrorClass.COLLATERAL, "RuntimeError", "Connection reset by peer", "", 0, "build", 5.1)
    nodes = Nodes(Failed(0, 1, lost_contact))
    made, journal = life(nodes, Records(), rank_exits=5)
    running = asyncio.ensure_future(made.run())
    async with asyncio.timeout(10):
        while made._monitor is None or not made._monitor.failures:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert "inspect_ranks" not in nodes.calls
    made.receive("node-1", BAD)
    async with asyncio.timeout(10):
        while made.status().phase != "held":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert nodes.calls.index("inspect_ranks") < nodes.calls.index("kill_ranks")
    (data,) = await events(journal, "held")
    assert data["reason"] == "user_error" and data["stacks"]["0"]["text"] == "in the loop"
    made.set_intents(intents(release=True))
    await asyncio.wait_for(running, 5)


async def test_logs_are_complete_only_after_the_ranks_have_ended() -> None:
    made, _ = life(Nodes(Joined(1, 1, 1.0)), Records())
    running = asyncio.ensure_future(made.run())
    async with asyncio.timeout(10):
        while made.status().phase != "forming":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert not made.has_ended(1) and not made.has_ended(2)
    made.receive("node-1", BAD)
    async with asyncio.timeout(10):
        while made.status().phase != "held":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert made.has_ended(1)
    made.set_intents(intents(release=True))
    await asyncio.wait_for(running, 5)


async def test_a_restarted_supervisor_continues_the_hold_without_extending_it() -> None:
    nodes, records = Nodes(BAD), Records()
    made, _ = life(nodes, records)
    running = await run_until_held(made)
    running.cancel()
    nodes.calls.clear()
    nodes.gone = True  # No agent is needed.
    made, journal = life(nodes, records)
    running = await run_until_held(made)
    assert "start_zygote" not in nodes.calls and made.failure_hold.stacks["0"]["text"] == "in the loop"
    (data,) = await events(journal, "held")
    assert made.failure_hold._until_s == data["until_s"]
    made.set_intents(intents(cancel=True))
    await asyncio.wait_for(running, 5)
    assert [(state["state"], state["reason"]) for state in await events(journal)][-1] == ("FAILED", "user_error")


async def test_the_hold_times_out_and_also_follows_an_exhausted_budget() -> None:
    made, journal = life(Nodes(Exited(1, 1, -9, 5.0)), Records(), "1s")
    await asyncio.wait_for(made.run(), 10)
    assert [state["state"] for state in await events(journal)][-2:] == ["DRAINING", "FAILED"]
    assert (await events(journal, "held"))[0]["reason"] == "budget_exhausted"


async def test_a_job_that_requests_no_hold_is_not_held() -> None:
    for hold_on_failure, request in (
        (None, intents()),
        ("10m", intents(cancel=True)),
        ("10m", intents(end={"reason": "max_duration"})),
    ):
        nodes = Nodes(BAD)
        made, journal = life(nodes, Records(), hold_on_failure)
        made.set_intents(request)
        await asyncio.wait_for(made.run(), 10)
        assert not await events(journal, "held")
        assert hold_on_failure is None or "inspect_ranks" not in nodes.calls
