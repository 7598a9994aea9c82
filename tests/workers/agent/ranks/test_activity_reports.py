"""Reports of an agent about its ranks: the changes, and everything when the supervisor may lack it."""

from dataclasses import replace

import pytest

from regroup.workers.agent.ranks.activity_reports import ActivityReports
from regroup.workers.contract.activity_report import ActivityReport, unpack
from regroup.workers.contract.rank_activity import RankActivity

STANDS = RankActivity(5, "forward", 3.0, 3.0, 4, 0.5)


class Agent:
    """An agent with two ranks, whose clock the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.reports = ActivityReports(lambda: self.now_s)
        self.activities = {0: STANDS, 1: STANDS}
        self.places = {0: (5, "forward"), 1: (5, "forward")}

    def report(self, after_s: float = 1.0, generation: int = 1) -> ActivityReport:
        self.now_s += after_s
        return self.reports.next_report(generation, self.places, self.activities, {})

    def stand(self, seconds: float = 1.0) -> None:
        """Let all ranks stand for longer."""
        self.activities = {
            rank: replace(each, stalled_s=each.stalled_s + seconds, idle_s=each.idle_s + seconds)
            for rank, each in self.activities.items()
        }


def ranks(report: ActivityReport) -> list[int]:
    return [record.rank for record in unpack(report.records)]


@pytest.fixture
def agent() -> Agent:
    """Return an agent whose supervisor has all its ranks."""
    agent = Agent()
    first = agent.report()
    assert first.is_full and ranks(first) == [0, 1]
    agent.reports.confirm("run-1")
    return agent


def test_ranks_that_stand_are_not_repeated(agent: Agent) -> None:
    agent.stand()
    report = agent.report()
    assert (report.is_full, ranks(report), report.clock_s) == (False, [], 102.0)


@pytest.mark.parametrize(
    "change",
    [{"step": 6}, {"phase": "backward"}, {"visits": 5}, {"idle_s": 0.0}, {"stalled_s": 0.0}, {"work_s": 0.2}],
)
def test_a_rank_that_has_changed_is_reported_alone(agent: Agent, change: dict[str, object]) -> None:
    agent.stand()
    agent.activities[1] = replace(agent.activities[1], **change)  # type: ignore[arg-type]
    report = agent.report()
    assert not report.is_full
    (record,) = unpack(report.records)
    assert record.rank == 1 and record.activity == agent.activities[1]


def test_a_lost_reply_makes_the_next_report_full(agent: Agent) -> None:
    agent.report()
    agent.reports.reset()
    assert agent.reports.is_full_next
    assert agent.report().is_full


def test_a_report_without_a_reply_is_not_known_to_the_supervisor(agent: Agent) -> None:
    agent.activities[1] = replace(STANDS, step=6)
    assert ranks(agent.report(0.0)) == [1]
    assert ranks(agent.report(0.0)) == [1], "it was not confirmed"


def test_a_restarted_supervisor_gets_a_full_report(agent: Agent) -> None:
    agent.stand()
    agent.report()
    agent.reports.confirm("run-2")
    assert agent.report().is_full
    agent.reports.confirm("run-2")
    assert not agent.report(0.0).is_full


def test_a_new_generation_and_a_dead_rank_make_a_report_full(agent: Agent) -> None:
    assert agent.report(generation=2).is_full
    agent.reports.confirm("run-1")
    del agent.activities[0]
    report = agent.report(0.0, generation=2)
    assert report.is_full
    assert [(each.rank, each.is_alive, each.activity.step) for each in unpack(report.records)] == [
        (0, False, 5), (1, True, 5),
    ]  # fmt: skip
