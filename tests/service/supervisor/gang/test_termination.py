"""The time between SIGTERM and SIGKILL, for ranks that end by plan."""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from regroup.service.supervisor.job_state.journal import Journal
from regroup.workers.contract.messages import Exited, Failed
from regroup.workers.contract.rank_error import ErrorClass, RankError
from tests.support.doubles.planned_job import NEW, OLD, SCRIPT, PlannedRig
from tests.support.doubles.supervised_job import SPEC
from tests.support.inputs.sync_records import intents

SHORT = {**SCRIPT, "termination_grace": 1.0}
ERROR = RankError(ErrorClass.USER, "ValueError", "broken", "", 1, "forward", 3.0)


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> AsyncGenerator[PlannedRig]:
    made = PlannedRig(getattr(request, "param", SCRIPT))
    yield made
    for task in (made.running, *made.nodes.tasks):
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)


def suspend(rig: PlannedRig) -> None:
    now_s = time.time()
    rig.life.set_intents(
        intents(
            change={
                "leaving": {}, "why": "suspended: night", "noticed_s": now_s, "deadline_s": None, "is_requeue": True,
                "reason": "suspended",
            }
        )
    )  # fmt: skip


async def notes(journal: Journal) -> list[tuple[bool, str]]:
    found = [event.data for event in await journal.since("", 0, 0) if event.type == "note"]
    return [(note["is_over"], note["message"]) for note in found if note["kind"] == "terminating"]


@pytest.mark.parametrize("sigterm", ["dies", "exits", "fails"])
async def test_a_suspended_script_ends_by_itself_without_an_incident_of_its_ranks(
    rig: PlannedRig, sigterm: str
) -> None:
    rig.nodes.sigterm, rig.nodes.save_s = sigterm, 0.3
    await rig.wait_for_steps()
    suspend(rig)
    await rig.until(lambda: rig.nodes.terminated)
    assert 1 not in rig.nodes.ended, "SIGTERM comes first"
    assert await asyncio.wait_for(rig.running, 20) is None
    assert rig.states()[-1] == ("QUEUED", "suspended")
    assert {incident["reason"] for incident in rig.events("incident")} == {"suspended"}
    assert await notes(rig.journal) == [
        (False, "suspended: night: the ranks got SIGTERM and have 30 s to end"),
        (True, "all 2 ranks ended after SIGTERM"),
    ]


@pytest.mark.parametrize("rig", [SHORT], indirect=True)
async def test_ranks_that_ignore_sigterm_are_killed_when_their_time_has_passed(rig: PlannedRig) -> None:
    rig.nodes.sigterm = "ignores"
    await rig.wait_for_steps()
    suspend(rig)
    assert await asyncio.wait_for(rig.running, 20) is None
    assert time.monotonic() - rig.nodes.terminated[1] >= 0.9
    assert 1 in rig.nodes.ended
    assert (await notes(rig.journal))[-1] == (True, "2 of 2 ranks did not end in time after SIGTERM and got SIGKILL")


@pytest.mark.parametrize("rig", [SCRIPT, SPEC], indirect=True)
@pytest.mark.parametrize(
    ("request_", "state"),
    [
        ({"cancel": True}, ("CANCELLED", "cancelled_by_user")),
        ({"end": {"reason": "max_duration", "message": "it ran for 60 s"}}, ("FAILED", "max_duration")),
    ],
)
async def test_a_job_that_is_ended_on_request_may_save(
    rig: PlannedRig, request_: dict[str, Any], state: tuple[str, str]
) -> None:
    rig.nodes.sigterm, rig.nodes.save_s = "exits", 0.3
    await rig.wait_for_steps()
    rig.life.set_intents(intents(**request_))
    assert await asyncio.wait_for(rig.running, 20) is None
    assert rig.states()[-1] == state
    assert rig.events("incident") == [] and [is_over for is_over, _ in await notes(rig.journal)] == [False, True]
    order = [method for _, method in rig.nodes.calls if method in ("terminate_ranks", "kill_ranks")]
    assert order == ["terminate_ranks"] * 2 + ["kill_ranks"] * 2


async def test_a_drained_script_gets_the_notice_that_is_left(rig: PlannedRig) -> None:
    rig.nodes.sigterm, rig.nodes.save_s = "exits", 0.2
    await rig.wait_for_steps()
    journal = rig.journal
    rig.drain(within_s=600.0)
    await rig.relocate()
    assert 1 in rig.nodes.terminated
    (_, message), *_ = await notes(journal)
    assert "have 59" in message, message
    await rig.wait_for_steps(generation=2)
    assert {incident["reason"] for incident in rig.events("incident")} == {"drained"}


async def test_a_script_gets_its_grace_although_no_node_is_ready_for_it(rig: PlannedRig) -> None:
    rig.nodes.unfit = "node-2"
    await rig.wait_for_steps()
    rig.drain(within_s=20.0)  # less than its grace
    await rig.until(lambda: rig.nodes.terminated)
    await rig.relocate()


async def test_a_resized_script_may_save(rig: PlannedRig) -> None:
    rig.nodes.sigterm, rig.nodes.save_s = "exits", 0.2
    await rig.wait_for_steps()
    change = {"leaving": {}, "why": "resized", "noticed_s": time.time(), "deadline_s": None, "is_requeue": False,
              "reason": "resized"}  # fmt: skip
    rig.life.set_intents(intents(change=change, nodes=NEW))
    await rig.relocate()
    assert 1 in rig.nodes.terminated


async def test_a_failure_is_killed_at_once(rig: PlannedRig) -> None:
    rig.nodes.sigterm = "ignores"
    await rig.wait_for_steps()
    rig.life.receive("node-0", Failed(0, 1, ERROR))
    await rig.until(lambda: 1 in rig.nodes.ended)
    assert rig.nodes.terminated == {}


async def test_an_error_after_sigterm_is_not_a_failure(rig: PlannedRig) -> None:
    rig.nodes.sigterm, rig.nodes.save_s = "exits", 0.4
    await rig.wait_for_steps()
    suspend(rig)
    await rig.until(lambda: rig.nodes.terminated)
    rig.life.receive("node-0", Failed(0, 1, ERROR))
    rig.life.receive("node-0", Exited(0, 1, 1, time.time()))
    await asyncio.sleep(0.1)
    assert 1 not in rig.nodes.ended, "the other rank still saves"
    assert await asyncio.wait_for(rig.running, 20) is None
    assert {incident["reason"] for incident in rig.events("incident")} == {"suspended"}


async def test_a_restarted_supervisor_lets_the_ranks_save(rig: PlannedRig) -> None:
    rig.nodes.sigterm, rig.nodes.save_s = "exits", 1.0
    await rig.wait_for_steps()
    suspend(rig)
    await rig.until(lambda: rig.nodes.terminated)
    rig.running.cancel()
    rig.begin()
    await rig.until(lambda: rig.life._monitor)  # pyright: ignore[reportPrivateUsage]
    suspend(rig)
    assert await asyncio.wait_for(rig.running, 20) is None
    assert time.monotonic() - rig.nodes.terminated[1] >= 1.0
    assert rig.states()[-1] == ("QUEUED", "suspended")


async def test_a_suspension_that_is_withdrawn_after_sigterm_starts_the_ranks_again(rig: PlannedRig) -> None:
    rig.nodes.sigterm, rig.nodes.save_s = "exits", 0.3
    await rig.wait_for_steps()
    suspend(rig)
    await rig.until(lambda: rig.nodes.terminated)
    rig.life.set_intents(intents(nodes=OLD))
    await rig.wait_for_steps(generation=2)
    assert rig.events("incident")[-1]["cause"] == "the planned change was withdrawn"
