"""The journal tells a listener what is new in this life, once."""

from regroup.service.ports.cluster import SupervisorEvent
from regroup.service.supervisor.journal import Journal
from tests.support.memory_records import Records


async def test_a_listener_hears_what_is_let_out_but_nothing_of_earlier_lives() -> None:
    records = Records()
    first: list[SupervisorEvent] = []
    journal = Journal(records, "j", on_event=first.append)
    await journal.write("incident:i:1", "incident", 1, {"id": "i"})
    journal.pass_on("step:1:1", "step", 1, 3.0, {"step": 1})
    assert [(event.seq, event.type) for event in first] == [(1, "incident"), (2, "step")]

    second: list[SupervisorEvent] = []
    again = Journal(records, "j", on_event=second.append)
    assert [event.key for event in await again.replay()] == ["incident:i:1"]
    await again.write("incident:i:1", "incident", 1, {"id": "i"})  # on record already
    assert second == []
    await again.write("incident:i:2", "incident", 1, {"id": "i"})
    assert [event.key for event in second] == ["incident:i:2"]
