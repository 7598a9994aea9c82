"""A job that people suspend, from the wish to its next turn, as the controller does it."""

import asyncio
import time
from collections.abc import Sequence

from regroup.service.domain.states import JobState
from regroup.service.ports.cluster import Reservation, supervisor_name
from tests.service.controller.test_controller import House, controlled, eventually
from tests.service.controller.test_controller import house as house
from tests.service.supervisor.test_planned_move import Rig
from tests.service.supervisor.test_planned_move import rig as rig
from tests.support.inputs.sync_records import intents


async def suspend(house: House, job_id: str) -> None:
    await house.store.queue.suspend(job_id, "for the night", now=1.0, actor="test")


async def test_it_gives_all_up_and_goes_on_when_it_is_resumed(house: House) -> None:
    async with controlled(house):
        job_id = await house.submit()
        supervisor = await house.supervisor(job_id)
        await supervisor.state("RUNNING", "first_step")
        await house.until_state(job_id, JobState.RUNNING)
        await suspend(house, job_id)
        told = await supervisor.wait_for_intent("change")
        assert told["is_requeue"] and (told["reason"], told["why"]) == ("suspended", "for the night")
        await supervisor.state("QUEUED", "suspended")
        await house.until_state(job_id, JobState.SUSPENDED)
        await eventually(lambda: house.cluster.held == {} and house.cluster.supervisors == {})
        other = await house.submit("other")
        await house.until_state(other, JobState.STARTING)
        await house.store.queue.resume(job_id, now=2.0, actor="test")
        await house.until(job_id, lambda job: any(each.reason == "resources" for each in job.conditions))
        await house.cluster.supervisors[supervisor_name(other)].state("FAILED", "user_error")
        await house.until_state(job_id, JobState.STARTING)


async def test_one_that_is_being_placed_does_not_start(house: House) -> None:
    job_id = await house.submit()
    taken = house.cluster.create_reservation

    async def slowly(reservation: Reservation) -> Sequence[int]:  # the wish comes while reservations are taken
        devices = await taken(reservation)
        await suspend(house, job_id)
        return devices

    house.cluster.create_reservation = slowly  # type: ignore[method-assign]
    async with controlled(house):
        await house.until_state(job_id, JobState.SUSPENDED)
        await eventually(lambda: house.cluster.held == {})
        assert house.cluster.supervisors == {}


def told() -> dict[str, object]:
    return {"leaving": {}, "why": "for the night", "noticed_s": time.time(), "deadline_s": None, "is_requeue": True,
            "reason": "suspended"}  # fmt: skip


async def test_the_supervisor_saves_the_last_step_and_lets_go(rig: Rig) -> None:
    await rig.trains()
    rig.life.set_intents(intents(change=told()))
    assert await asyncio.wait_for(rig.running, 20) is None
    last, save = rig.nodes.stops[1]
    incident = rig.events("incident")[-1]
    assert save and (incident["reason"], incident["at_step"]) == ("suspended", last)
    assert rig.states()[-2:] == [("RESIZING", "suspended"), ("QUEUED", "suspended")]


async def test_a_wish_taken_back_before_the_ranks_have_ended_costs_no_step(rig: Rig) -> None:
    rig.nodes.listens = False
    await rig.trains()
    rig.life.set_intents(intents(change=told()))
    await rig.trains()
    rig.life.set_intents(intents())
    await rig.trains()
    assert rig.states()[-1][0] == "RUNNING" and rig.events("incident") == []
