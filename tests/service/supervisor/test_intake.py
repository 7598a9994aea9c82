"""The intake of agent messages, for any order of reports, lost answers and supervisor restarts."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.supervisor.job_state.journal import Intake
from regroup.workers.agent.outbox import Outbox
from regroup.workers.contract.messages import Note


class Channel:
    """An agent, its current supervisor, and the database."""

    def __init__(self) -> None:
        self.outbox, self.count, self.runs = Outbox(), 0, 0
        self.durable: list[int] = []
        self.restart()

    def restart(self) -> None:
        """Restart the supervisor. Messages that the database does not have are lost."""
        self.runs += 1
        self.intake, self.events, self.acked = Intake(f"run-{self.runs}"), list[int](), 0

    def emit(self) -> None:
        """Put one more message into the outbox of the agent."""
        self.outbox.add(Note(0, "note", {"number": self.count}, 0.0))
        self.count += 1

    def report(self, *, is_answered: bool = True) -> None:
        """Send one report."""
        outbox, intake = self.outbox, self.intake
        for message in intake.filter_new(outbox.boot_id, outbox.supervisor_run, outbox.next_batch()):
            self.events.append(message["data"]["number"])
        intake.record_caused(outbox.boot_id, len(self.events))
        if is_answered:
            durable = intake.durable(outbox.boot_id, self.acked)
            outbox.acknowledge(intake.supervisor_boot_id, intake.received(outbox.boot_id), durable)

    def ingest(self) -> None:
        """Ingest the new events into the database."""
        self.durable += [number for number in self.events[self.acked :] if number not in self.durable]
        self.acked = len(self.events)


def test_a_message_lost_with_a_supervisor_is_sent_to_the_next_one() -> None:
    channel = Channel()
    channel.emit()
    channel.report()
    channel.restart()  # Before the database has the message.
    channel.emit()
    for _ in range(3):
        channel.report()
        channel.ingest()
    assert channel.durable == [0, 1]
    channel.report()
    assert len(channel.outbox) == 0


ACTIONS: dict[str, Any] = {
    "emit": Channel.emit,
    "report": Channel.report,
    "report, answer lost": lambda channel: channel.report(is_answered=False),
    "ingest": Channel.ingest,
    "restart": Channel.restart,
}


@settings(max_examples=300)
@given(st.lists(st.sampled_from(sorted(ACTIONS)), max_size=40))
def test_no_message_is_lost_or_out_of_order(actions: list[str]) -> None:
    channel = Channel()
    for action in actions:
        ACTIONS[action](channel)
    for _ in range(4):
        channel.report()
        channel.ingest()
    assert channel.durable == list(range(channel.count))
    channel.report()
    assert len(channel.outbox) == 0, "the outbox is empty at the end"
