"""The journal notifies a listener once of each new event."""

from regroup.service.domain.job_events import IncidentRevised
from regroup.service.domain.states import Reason
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.supervisor.job_state.journal import Journal
from regroup.workers.contract.messages import StepRow
from tests.support.doubles.memory_records import Records

INCIDENT = IncidentRevised(id="i", cause="rank 1 killed by signal 9", reason=Reason.RANK_EXIT)


async def test_a_listener_gets_new_events_but_none_of_earlier_supervisors() -> None:
    records = Records()
    first: list[SupervisorEvent] = []
    journal = Journal(records, "j", on_event=first.append)
    await journal.record("incident:i:1", INCIDENT, 1)
    journal.emit("step:1:1", StepRow(1, 1, 3.0, None, 2.0, None, None, None, None, None), 1, 3.0)
    assert [(event.seq, event.type) for event in first] == [(1, "incident"), (2, "step")]

    second: list[SupervisorEvent] = []
    again = Journal(records, "j", on_event=second.append)
    assert [event.key for event in await again.replay()] == ["incident:i:1"]
    await again.record("incident:i:1", INCIDENT, 1)  # The record exists.
    assert second == []
    await again.record("incident:i:2", INCIDENT, 1)
    assert [event.key for event in second] == ["incident:i:2"]
