"""The journal notifies a listener once of each new event, and lets steps wait for others."""

import asyncio

from regroup.service.domain.job_events import IncidentRevised, MirrorChanged, PhaseProgressed
from regroup.service.domain.states import Reason
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.supervisor.job_state.journal import Journal
from regroup.workers.contract.messages import StepRow
from tests.support.doubles.memory_records import Records

ROW = StepRow(1, 1, 3.0, None, 2.0, None, None, None, None, None)
INCIDENT = IncidentRevised(id="i", cause="rank 1 killed by signal 9", reason=Reason.RANK_EXIT)


async def test_a_listener_gets_new_events_but_none_of_earlier_supervisors() -> None:
    records = Records()
    first: list[SupervisorEvent] = []
    journal = Journal(records, "j", on_event=first.append)
    await journal.record("incident:i:1", INCIDENT, 1)
    journal.emit("step:1:1", ROW, 1, 3.0)
    assert [(event.seq, event.type) for event in first] == [(1, "incident"), (2, "step")]

    second: list[SupervisorEvent] = []
    again = Journal(records, "j", on_event=second.append)
    assert [event.key for event in await again.replay()] == ["incident:i:1"]
    await again.record("incident:i:1", INCIDENT, 1)  # The record exists.
    assert second == []
    await again.record("incident:i:2", INCIDENT, 1)
    assert [event.key for event in second] == ["incident:i:2"]


async def test_steps_wait_for_others_and_any_other_event_ends_the_wait() -> None:
    journal = Journal(Records(), "j")
    journal.emit("step:1:1", ROW, 1, 1.0)
    gathering = asyncio.create_task(journal.since("", 0, 20.0, 10.0))
    await asyncio.sleep(0)
    journal.emit("step:1:2", ROW, 1, 1.0)
    await asyncio.sleep(0.01)
    assert not gathering.done(), "steps alone are gathered"
    journal.emit("phase:1", PhaseProgressed("forming"), 1, 1.0)
    events = await asyncio.wait_for(gathering, 5)
    assert [event.type for event in events] == ["step", "step", "phase"]
    acknowledged = asyncio.create_task(journal.since(journal.boot_id, 3, 20.0, 10.0))
    journal.emit("step:1:3", ROW, 1, 1.0)
    await asyncio.sleep(0.01)
    assert not acknowledged.done()
    journal.close()
    assert [event.seq for event in await asyncio.wait_for(acknowledged, 5)] == [4]


async def test_newer_mirrors_are_gathered_and_lost_ones_are_not() -> None:
    journal = Journal(Records(), "j")
    journal.emit("mirror:1", MirrorChanged(3), 1, 1.0)
    gathering = asyncio.create_task(journal.since("", 0, 20.0, 10.0))
    await asyncio.sleep(0.01)
    assert not gathering.done()
    journal.emit("mirror:2", MirrorChanged(None), 1, 1.0)
    assert len(await asyncio.wait_for(gathering, 5)) == 2
    fewer = asyncio.create_task(journal.since(journal.boot_id, 2, 20.0, 10.0))
    journal.emit("mirror:3", MirrorChanged(4, 1, "node a is short of memory"), 1, 1.0)
    assert len(await asyncio.wait_for(fewer, 5)) == 1


async def test_gathered_steps_arrive_after_their_time() -> None:
    journal = Journal(Records(), "j")
    journal.emit("step:1:1", ROW, 1, 1.0)
    assert len(await asyncio.wait_for(journal.since("", 0, 20.0, 0.01), 5)) == 1
    assert len(await journal.since("", 0, 20.0)) == 1, "without gathering they arrive at once"
