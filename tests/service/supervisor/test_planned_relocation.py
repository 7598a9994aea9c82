"""Planned relocation. Substitutes are prepared while the job trains, and its ranks stop at a step to move there."""

import asyncio
import time
from collections.abc import AsyncGenerator

import pytest

from regroup.workers.contract import agent_records as records
from regroup.workers.contract.messages import Exited
from tests.support.doubles.planned_job import NEW, OLD, SCRIPT, PlannedRig
from tests.support.doubles.supervised_job import SPEC
from tests.support.inputs.sync_records import assigned, intents


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> AsyncGenerator[PlannedRig]:
    made = PlannedRig(getattr(request, "param", SPEC), preflight=True)
    yield made
    for task in (made.running, *made.nodes.tasks):
        while not task.done():
            task.cancel()  # A wait whose result has just arrived ignores one cancellation.
            await asyncio.sleep(0)


async def test_a_job_leaves_a_drained_node_without_losing_a_step(rig: PlannedRig) -> None:
    await rig.wait_for_steps()
    rig.drain()
    relocated = await rig.relocate()
    assert relocated.nodes == assigned(NEW) and relocated.former == {"node-1": "n1"}
    last, save = rig.nodes.stops[1]
    assert not save and rig.nodes.started_at["node-2"] <= last, "the substitute was prepared during training"
    await rig.wait_for_steps(generation=2)
    address = records.TransferAddress("node-1", 1, "t", "node-1")
    assert rig.nodes.fetched[2:] == [("node-0", 2, []), ("node-2", 2, [records.ShardHolder(address, (1,))])], (
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


async def test_a_former_node_is_released_after_the_first_step_and_its_last_message(rig: PlannedRig) -> None:
    await rig.wait_for_steps()
    rig.drain()
    rig.nodes.unsent = 3
    await rig.relocate()
    await rig.wait_for_steps(generation=2, steps=50)
    assert rig.life.status().former == ("node-1",), "the former node has unsent messages"
    rig.nodes.unsent = 0
    await rig.until(lambda: not rig.life.status().former)
    shut = rig.nodes.calls.index(("node-1", "shutdown"))
    assert rig.nodes.calls.index(("node-2", "begin_ranks")) < shut < rig.nodes.calls.index(("node-1", "kill"))
    await rig.wait_for_steps(generation=2, steps=10)
    assert not rig.running.done(), "the end of its heartbeats is not a loss"


@pytest.mark.parametrize("rig", [SCRIPT], indirect=True)
async def test_a_script_is_killed_when_the_substitute_is_ready(rig: PlannedRig) -> None:
    """Fetch nothing and wait for no step: a script agrees on no step and saves its own state."""
    await rig.wait_for_steps()
    rig.drain()
    await rig.relocate()
    assert rig.nodes.stops == {} and 1 in rig.nodes.ended and ("node-2", "start_zygote") in rig.nodes.calls
    await rig.until(lambda: not rig.life.status().former)
    await rig.wait_for_steps(generation=2)
    assert [holders for _, generation, holders in rig.nodes.fetched if generation == 2] == [[], []]
    assert rig.events("incident")[-1]["reason"] == "drained"
    assert ("RESIZING", "drained") in rig.states()


async def test_the_job_ends_after_the_last_message_of_the_former_node(rig: PlannedRig) -> None:
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


async def test_a_planned_relocation_is_charged_to_no_budget(rig: PlannedRig) -> None:
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


async def test_an_unready_substitute_does_not_stop_training(rig: PlannedRig) -> None:
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


async def test_a_substitute_that_computes_wrongly_fails_its_preflight_check(rig: PlannedRig) -> None:
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


async def test_completed_preparations_are_not_repeated_after_the_stop(rig: PlannedRig) -> None:
    await rig.wait_for_steps()
    rig.drain()
    await rig.until(lambda: ("node-2", "run_preflight") in rig.nodes.calls)
    await rig.relocate()
    before = len(rig.nodes.calls)
    await rig.wait_for_steps(generation=2)
    methods = {method for _, method in rig.nodes.calls[before:]}
    assert "begin_ranks" in methods and "form_ranks" not in methods
    assert not methods & {"start", "start_zygote", "check_storage", "list_sources", "fetch_data", "run_preflight"}


async def test_an_agent_that_died_after_its_preparation_is_started_again(rig: PlannedRig) -> None:
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


async def test_ranks_that_miss_the_deadline_are_killed_and_the_loss_is_reported(rig: PlannedRig) -> None:
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


async def test_without_a_substitute_the_job_saves_its_last_step_and_queues(rig: PlannedRig) -> None:
    await rig.wait_for_steps()
    rig.drain(is_requeue=True)
    assert await asyncio.wait_for(rig.running, 20) is None
    last, save = rig.nodes.stops[1]
    assert save and rig.events("incident")[-1]["at_step"] == last
    assert rig.states()[-1] == ("QUEUED", "drained")
    assert "disks" in rig.events("state")[-1]["message"]


async def test_an_early_departure_of_a_drained_node_is_not_a_failure(rig: PlannedRig) -> None:
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
async def test_a_planned_end_of_a_node_is_not_a_failure(rig: PlannedRig, message: str, reason: str) -> None:
    await rig.wait_for_steps()
    rig.nodes.planned_ends["node-1"] = message
    rig.nodes.dead.add("node-1")
    assert rig.life._monitor is not None  # pyright: ignore[reportPrivateUsage]
    rig.life._monitor.record_loss("node-1", time.time())  # pyright: ignore[reportPrivateUsage]  # instead of the liveness monitor
    incident = (await rig.until(lambda: rig.events("incident")))[-1]
    assert incident["reason"] == reason and message in incident["cause"]


async def test_a_restarted_supervisor_uses_the_nodes_of_the_last_relocation(rig: PlannedRig) -> None:
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


async def test_a_drain_cancelled_after_the_stop_resumes_on_the_same_nodes(rig: PlannedRig) -> None:
    await rig.wait_for_steps()
    rig.nodes.unfit = "node-2"
    rig.nodes.on_stop = lambda: rig.life.set_intents(intents())
    # Near the deadline, ranks stop even if no substitute is ready.
    rig.drain(within_s=60.0, noticed_s=time.time() - 42.0)
    await rig.wait_for_steps(generation=2)
    assert rig.events("incident")[-1]["steps_lost"] == 0
    assert [node for node, generation, _ in rig.nodes.fetched if generation == 2] == ["node-0", "node-1"]


async def test_a_failure_during_a_drain_recovers_on_the_new_nodes_if_ready(rig: PlannedRig) -> None:
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
