"""What an agent says and what a supervisor takes, over any order of beats, answers that are lost, and lives."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.supervisor.journal import Intake
from regroup.workers.agent.outbox import Outbox
from regroup.workers.contract.messages import Note


class Line:
    """An agent, its supervisor's present life, and the database behind it."""

    def __init__(self) -> None:
        self.outbox, self.count, self.lives = Outbox(), 0, 0
        self.durable: list[int] = []
        self.live()

    def live(self) -> None:
        """The supervisor begins anew; what it knew and the database did not is gone."""
        self.lives += 1
        self.intake, self.events, self.acked = Intake(f"life-{self.lives}"), list[int](), 0

    def say(self) -> None:
        """The agent has one more message."""
        self.outbox.add(Note(0, "said", {"number": self.count}, 0.0))
        self.count += 1

    def report(self, *, is_answered: bool = True) -> None:
        """One beat."""
        outbox, intake = self.outbox, self.intake
        for message in intake.filter_new(outbox.boot_id, outbox.supervisor_run, outbox.next_batch()):
            self.events.append(message["data"]["number"])
        intake.record_caused(outbox.boot_id, len(self.events))
        if is_answered:
            durable = intake.durable(outbox.boot_id, self.acked)
            outbox.acknowledge(intake.supervisor_boot_id, intake.received(outbox.boot_id), durable)

    def ingest(self) -> None:
        """The controller takes what there is."""
        self.durable += [number for number in self.events[self.acked :] if number not in self.durable]
        self.acked = len(self.events)


def test_what_one_life_took_and_nobody_kept_is_told_to_the_next_though_it_hears_something_newer_first() -> None:
    line = Line()
    line.say()
    line.report()
    line.live()  # before the database had it
    line.say()
    for _ in range(3):
        line.report()
        line.ingest()
    assert line.durable == [0, 1]
    line.report()
    assert len(line.outbox) == 0


DOINGS: dict[str, Any] = {
    "say": Line.say,
    "report": Line.report,
    "report, answer lost": lambda line: line.report(is_answered=False),
    "ingest": Line.ingest,
    "live": Line.live,
}


@settings(max_examples=300)
@given(st.lists(st.sampled_from(sorted(DOINGS)), max_size=40))
def test_nothing_is_lost_and_nothing_is_out_of_order(doings: list[str]) -> None:
    line = Line()
    for doing in doings:
        DOINGS[doing](line)
    for _ in range(4):
        line.report()
        line.ingest()
    assert line.durable == list(range(line.count))
    line.report()
    assert len(line.outbox) == 0, "and nothing is kept for ever"
