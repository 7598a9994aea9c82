"""Overlap of generations: the ranks of a planned change are formed while the ranks before them train."""

import asyncio
import time
from collections.abc import AsyncGenerator

import pytest

from regroup.service.ports.sync import SecretValues
from regroup.workers.contract.agent_records import AgentErrorKind
from regroup.workers.contract.messages import Exited, Failed
from regroup.workers.contract.rank_error import ErrorClass, RankError
from tests.support.doubles.planned_job import SCRIPT, PlannedRig
from tests.support.doubles.supervised_job import SPEC, place
from tests.support.inputs.sync_records import intents

_ERROR = RankError(ErrorClass.USER, "RuntimeError", "no memory for the model", "", 0, "build", 1.0)


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> AsyncGenerator[PlannedRig]:
    made = PlannedRig(getattr(request, "param", SPEC))
    yield made
    for task in (made.running, *made.nodes.tasks):
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)


def prepared_notes(rig: PlannedRig) -> list[str]:
    return [note["message"] for note in rig.notes() if note["kind"] == "prepared"]


def order(rig: PlannedRig, *calls: tuple[str, str]) -> list[int]:
    return [rig.nodes.calls.index(call) for call in calls]


async def until_prepared(rig: PlannedRig) -> None:
    """Start a change whose ranks do not stop, and wait until the next ranks are prepared."""
    await rig.wait_for_steps()
    rig.nodes.listens = False
    rig.drain(within_s=None)
    await rig.until(lambda: ("node-0", "stop_ranks") in rig.nodes.calls)


async def test_the_next_ranks_are_formed_before_the_present_ones_stop(rig: PlannedRig) -> None:
    await rig.wait_for_steps()
    rig.drain()
    await rig.relocate()
    await rig.wait_for_steps(generation=2)
    first, *rest = order(rig, ("node-0", "prepare_ranks"), ("node-0", "stop_ranks"), ("node-0", "kill_ranks"),
                         ("node-0", "begin_ranks"))  # fmt: skip
    assert [first, *rest] == sorted([first, *rest])
    assert not [call for call in rig.nodes.calls if call[1] == "form_ranks"][2:], "only generation 1 was forked late"
    assert prepared_notes(rig) == ["2 ranks of generation 2 are formed while generation 1 trains"]
    assert {join.restore.source for join in rig.nodes.waited} == {"later"}
    assert {join.generation for join in rig.nodes.waited} == {2}


async def test_the_record_is_written_before_the_ranks_get_their_state(rig: PlannedRig) -> None:
    await rig.wait_for_steps()
    rig.drain()
    seen: list[bool] = []
    rig.nodes.on_begin = lambda: seen.append("generation/j/00000002" in rig.records.data and 1 in rig.nodes.ended)
    await rig.relocate()
    await rig.wait_for_steps(generation=2)
    assert seen == [True, True]


@pytest.mark.parametrize("message", [Exited(1, 2, -9, 1.0), Failed(1, 2, _ERROR)], ids=["killed", "raises"])
async def test_a_change_continues_without_prepared_ranks_that_fail(rig: PlannedRig, message: Exited | Failed) -> None:
    await rig.wait_for_steps()
    rig.nodes.on_prepare = lambda: rig.life.receive("node-2", message)
    rig.drain()
    await rig.relocate()
    await rig.wait_for_steps(generation=2)
    later = rig.nodes.calls[rig.nodes.calls.index(("node-2", "prepare_ranks")) :]
    assert {("node-0", "discard_ranks"), ("node-0", "form_ranks")} <= set(later)
    assert ("node-0", "begin_ranks") not in rig.nodes.calls and rig.nodes.prepared == {}
    (note,) = prepared_notes(rig)
    assert note.startswith("the ranks of generation 2 are formed after generation 1 has ended: rank 1")
    assert rig.events("incident")[-1]["steps_lost"] == 0


async def test_a_node_without_memory_for_both_generations_forms_the_ranks_later(rig: PlannedRig) -> None:
    await rig.wait_for_steps()
    rig.nodes.refuse = {"prepare_ranks": "4 ranks of the next generation need up to 900 MiB"}
    rig.nodes.refuse_kind = AgentErrorKind.NO_MEMORY
    rig.drain()
    await rig.relocate()
    await rig.wait_for_steps(generation=2)
    assert "need up to 900 MiB" in prepared_notes(rig)[0] and ("node-2", "form_ranks") in rig.nodes.calls


async def test_prepared_ranks_die_with_a_generation_that_fails(rig: PlannedRig) -> None:
    await until_prepared(rig)
    rig.life.receive("node-0", Exited(0, 1, -9, time.time()))
    await rig.relocate()
    await rig.wait_for_steps(generation=2)
    assert ("node-2", "discard_ranks") in rig.nodes.calls and ("node-2", "begin_ranks") not in rig.nodes.calls
    assert rig.events("incident")[-1]["reason"] == "rank_exit"


async def test_prepared_ranks_that_die_during_the_hand_over_are_replaced(rig: PlannedRig) -> None:
    await rig.wait_for_steps()
    rig.drain()
    await asyncio.wait_for(rig.running, 20)
    rig.nodes.prepared.pop("node-2")  # The agent has started again.
    rig.payload = rig.payload.with_nodes(rig.running.result().nodes, rig.running.result().layout)  # type: ignore[union-attr]
    rig.begin(rig.gang.with_configs(rig.payload.agent_configs()))
    await rig.wait_for_steps(generation=2)
    assert ("node-0", "discard_ranks") in rig.nodes.calls and ("node-0", "begin_ranks") not in rig.nodes.calls


async def test_a_restarted_supervisor_kills_prepared_ranks_and_trains_on(rig: PlannedRig) -> None:
    await until_prepared(rig)
    rig.running.cancel()
    assert rig.nodes.prepared.keys() == {"node-0", "node-2"}
    calls = len(rig.nodes.calls)
    rig.begin()
    await rig.wait_for_steps()
    assert rig.nodes.prepared.keys() == {"node-2"}, "the next change, or the end of its agent, kills the others"
    assert ("node-0", "kill_ranks") not in rig.nodes.calls[calls:] and rig.nodes.generation["node-0"] == 1
    rig.nodes.listens = True
    rig.drain()
    await rig.relocate()
    await rig.wait_for_steps(generation=2)
    assert ("node-2", "begin_ranks") in rig.nodes.calls


async def test_a_withdrawn_change_discards_the_prepared_ranks(rig: PlannedRig) -> None:
    await until_prepared(rig)
    rig.life.set_intents(intents())
    await rig.until(lambda: not rig.nodes.prepared)
    await rig.wait_for_steps()
    assert rig.nodes.generation["node-0"] == 1


async def test_ranks_with_old_secrets_are_not_used(rig: PlannedRig) -> None:
    await rig.wait_for_steps()
    rig.nodes.on_stop = lambda: rig.gang.secrets.receive(SecretValues("2", {"TOKEN": "new"}))
    rig.drain()
    await rig.relocate()
    await rig.wait_for_steps(generation=2)
    assert ("node-0", "discard_ranks") in rig.nodes.calls and ("node-0", "begin_ranks") not in rig.nodes.calls


@pytest.mark.parametrize("rig", [SCRIPT], indirect=True)
async def test_programs_do_not_overlap(rig: PlannedRig) -> None:
    """Start no program before the present one has saved: a program loads its own state at its start."""
    await rig.wait_for_steps()
    rig.drain()
    await rig.relocate()
    await rig.wait_for_steps(generation=2)
    assert ("node-0", "prepare_ranks") not in rig.nodes.calls


async def test_another_target_replaces_the_prepared_ranks(rig: PlannedRig) -> None:
    await until_prepared(rig)
    (join, *_), _ = rig.nodes.prepared["node-0"]
    assert join.world_size == 2
    change = {"leaving": {"node-1": "n1"}, "why": "resized", "noticed_s": time.time(), "deadline_s": None}
    split = {"dp_replicate": 1, "dp_shard": 1, "cp": 1, "tp": 1, "pp": 1}
    rig.life.set_intents(intents(change=change, nodes=[place("node-0")], layout=split))
    await rig.until(lambda: rig.nodes.prepared.keys() == {"node-0"})
    (join, *_), _ = rig.nodes.prepared["node-0"]
    assert join.world_size == 1
