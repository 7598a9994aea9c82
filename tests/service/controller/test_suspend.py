"""The suspension of a job by a user, from the request to its next start."""

import asyncio
import time
from collections.abc import Sequence

from regroup.service.domain.author import Author
from regroup.service.domain.states import JobState
from regroup.service.ports.cluster import Reservation, supervisor_name
from tests.service.controller.test_controller import ControlSetup, controlled, eventually
from tests.service.controller.test_controller import setup as setup
from tests.service.supervisor.test_planned_relocation import rig as rig
from tests.support.doubles.planned_job import PlannedRig
from tests.support.inputs.sync_records import intents


async def suspend(setup: ControlSetup, job_id: str) -> None:
    await setup.store.queue.suspend(job_id, "for the night", now=1.0, author=Author("test"))


async def test_a_suspended_job_releases_all_nodes_and_runs_again_when_resumed(setup: ControlSetup) -> None:
    async with controlled(setup):
        job_id = await setup.submit()
        supervisor = await setup.supervisor(job_id)
        await supervisor.state("RUNNING", "first_step")
        await setup.until_state(job_id, JobState.RUNNING)
        await suspend(setup, job_id)
        change = await supervisor.wait_for_intent("change")
        assert change["is_requeue"] and (change["reason"], change["why"]) == ("suspended", "for the night")
        await supervisor.state("QUEUED", "suspended")
        await setup.until_state(job_id, JobState.SUSPENDED)
        await eventually(lambda: setup.cluster.held == {} and setup.cluster.supervisors == {})
        other = await setup.submit("other")
        await setup.until_state(other, JobState.STARTING)
        await setup.store.queue.resume(job_id, now=2.0, author=Author("test"))
        await setup.until(job_id, lambda job: any(each.reason == "resources" for each in job.conditions))
        await setup.cluster.supervisors[supervisor_name(other)].state("FAILED", "user_error")
        await setup.until_state(job_id, JobState.STARTING)


async def test_a_job_suspended_during_placement_does_not_start(setup: ControlSetup) -> None:
    job_id = await setup.submit()
    create_reservation = setup.cluster.create_reservation

    async def suspend_then_return(reservation: Reservation) -> Sequence[int]:
        devices = await create_reservation(reservation)
        await suspend(setup, job_id)
        return devices

    setup.cluster.create_reservation = suspend_then_return  # type: ignore[method-assign]
    async with controlled(setup):
        await setup.until_state(job_id, JobState.SUSPENDED)
        await eventually(lambda: setup.cluster.held == {})
        assert setup.cluster.supervisors == {}


def suspension() -> dict[str, object]:
    return {"leaving": {}, "why": "for the night", "noticed_s": time.time(), "deadline_s": None, "is_requeue": True,
            "reason": "suspended"}  # fmt: skip


async def test_the_supervisor_saves_the_last_step_and_stops(rig: PlannedRig) -> None:
    await rig.wait_for_steps()
    rig.life.set_intents(intents(change=suspension()))
    assert await asyncio.wait_for(rig.running, 20) is None
    last, save = rig.nodes.stops[1]
    incident = rig.events("incident")[-1]
    assert save and (incident["reason"], incident["at_step"]) == ("suspended", last)
    assert rig.states()[-2:] == [("RESIZING", "suspended"), ("QUEUED", "suspended")]


async def test_a_suspension_cancelled_before_the_ranks_stop_costs_no_step(rig: PlannedRig) -> None:
    rig.nodes.listens = False
    await rig.wait_for_steps()
    rig.life.set_intents(intents(change=suspension()))
    await rig.wait_for_steps()
    rig.life.set_intents(intents())
    await rig.wait_for_steps()
    assert rig.states()[-1][0] == "RUNNING" and rig.events("incident") == []
