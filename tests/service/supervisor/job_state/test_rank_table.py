"""The supervisor's table of ranks, from full reports and from changes."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.supervisor.job_state.rank_table import RankTable
from regroup.workers.agent.ranks.activity_reports import ActivityReports
from regroup.workers.contract.activity_report import ActivityReport, RankRecord, pack
from regroup.workers.contract.messages import AgentReport
from regroup.workers.contract.rank_activity import RankActivity

STANDS = RankActivity(5, "forward", 3.0, 3.0, 4, 0.5, 12, 0.25, 0.01)


def report(
    clock_s: float, *records: RankRecord, is_full: bool = True, generation: int = 1, boot_id: str = "boot"
) -> AgentReport:
    activity = ActivityReport(is_full, clock_s, pack(records), {"forward": 2.0})
    return AgentReport("node-0", boot_id, generation, (0,), (), activity)


def test_a_rank_that_is_not_repeated_stands_for_longer() -> None:
    table = RankTable()
    assert table.receive(report(10.0, RankRecord(0, True, STANDS)))
    assert table.receive(report(14.0, is_full=False))
    assert table.activities[0] == replace(STANDS, stalled_s=7.0, idle_s=7.0)
    assert table.reports() == {0: (5, "forward", 0.25, 0.01, 7.0)}
    assert table.first_visits_s == {1: {"forward": 2.0}}


def test_changes_without_the_reports_before_are_refused() -> None:
    table = RankTable()
    assert not table.receive(report(10.0, RankRecord(0, True, STANDS), is_full=False))
    assert len(table.activities) == 0
    table.receive(report(10.0, RankRecord(0, True, STANDS)))
    assert not table.receive(report(11.0, is_full=False, boot_id="another agent"))
    assert not table.receive(report(11.0, is_full=False, generation=2)), "a new generation starts with full reports"


def test_a_new_generation_replaces_the_one_before_and_late_reports_change_nothing() -> None:
    table = RankTable()
    table.receive(report(10.0, RankRecord(0, True, STANDS), RankRecord(1, True, STANDS)))
    table.receive(report(11.0, RankRecord(0, True, replace(STANDS, step=9)), generation=2))
    assert table.receive(report(12.0, RankRecord(1, True, STANDS)))
    assert {rank: each.step for rank, each in table.activities.items()} == {0: 9}


def test_a_rank_that_has_ended_keeps_its_activity_and_shows_its_last_place() -> None:
    table = RankTable()
    table.receive(report(10.0, RankRecord(0, True, STANDS)))
    ended = RankRecord(0, False, RankActivity(6, "done", 0.0, 0.0, 0, 0.0))
    table.receive(report(12.0, ended))
    table.receive(report(20.0, is_full=False))
    assert table.activities[0] == STANDS, "as when it was last seen alive"
    assert table.reports() == {0: (6, "done", 0.25, 0.01, 3.0)}


MOVES = st.lists(st.sampled_from(["move", "stand", "busy", "lost reply", "restart"]), max_size=30)


@settings(max_examples=200)
@given(MOVES)
def test_changes_give_the_same_table_as_full_reports(moves: list[str]) -> None:
    """Receive the last report, and compare the table with the measurements of the agent."""
    now_s, run = 0.0, 1
    agent, table, activity = ActivityReports(lambda: now_s), RankTable(), STANDS
    for move in [*moves, "stand", "stand"]:
        now_s += 1.0
        if move == "move":
            activity = replace(activity, step=activity.step + 1, stalled_s=0.0, idle_s=0.0)
        else:
            idle_s = 0.0 if move == "busy" else activity.idle_s + 1.0
            activity = replace(activity, stalled_s=activity.stalled_s + 1.0, idle_s=idle_s)
        if move == "restart":
            run, table = run + 1, RankTable()
        sent = agent.next_report(1, {0: (activity.step, activity.phase)}, {0: activity}, {})
        has_base = table.receive(AgentReport("node-0", "boot", 1, (0,), (), sent))
        if move == "lost reply":
            agent.reset()
            continue
        agent.confirm(f"run-{run}")
        if not has_base:
            agent.reset()
    shown = table.activities[0]
    assert (shown.step, shown.stalled_s, shown.idle_s) == (activity.step, activity.stalled_s, activity.idle_s)
