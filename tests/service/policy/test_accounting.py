import pytest
from hypothesis import given
from hypothesis import strategies as st

from regroup.service.domain.states import JobState
from regroup.service.policy.accounting import (
    CLASS_OF_STATE,
    StateMark,
    TimeClass,
    device_seconds,
    goodput,
    incident_seconds,
    mean_recovery_s,
    queue_waits,
    seconds_by_class,
    steps_lost,
)

TIMELINE = [
    StateMark(0, JobState.QUEUED),
    StateMark(10, JobState.PLACING),
    StateMark(11, JobState.STARTING),
    StateMark(15, JobState.RUNNING),
    StateMark(45, JobState.RECOVERING),
    StateMark(46, JobState.RUNNING),
    StateMark(65, JobState.SUCCEEDED),
]


def test_the_seconds_of_a_job_are_divided_into_classes() -> None:
    within = {TimeClass.RECOMPUTE: 4, TimeClass.STALL: 2, TimeClass.DETECTING: 0.5, TimeClass.RECOVERING: 0.5}
    seconds = seconds_by_class(TIMELINE, 1000, within)
    spent = {kind.value: value for kind, value in seconds.items() if value}
    assert spent == {
        "queued": 10, "starting": 5, "productive": 42, "recompute": 4, "checkpoint_stall": 2, "detecting": 0.5,
        "recovering": 1.5,
    }  # fmt: skip
    assert goodput(seconds) == pytest.approx(42 / 55)
    assert device_seconds(seconds, 4)[TimeClass.PRODUCTIVE] == 168
    assert TimeClass.QUEUED not in device_seconds(seconds, 4)
    assert queue_waits(TIMELINE) == [10]


def test_the_seconds_of_incidents_are_divided_by_reason() -> None:
    incidents = [
        {"reason": "hang", "durations": {"detect": 9.0, "teardown": 0.2, "total": 12.0}},
        {"reason": "rank_exit", "durations": {"detect": 0.1, "teardown": 0.3}},
        {"reason": "rank_exit", "durations": {}},
        {"reason": "drained", "durations": {"detect": 0.0, "teardown": 0.4}},
    ]
    spent = incident_seconds(incidents)
    assert spent == {TimeClass.HANG: 9.0, TimeClass.DETECTING: 0.1, TimeClass.RECOVERING: 0.5, TimeClass.RESIZING: 0.4}


def test_a_job_that_waits_has_no_goodput_and_no_finished_wait() -> None:
    assert goodput(seconds_by_class(TIMELINE[:1], until_s=7)) is None
    assert queue_waits(TIMELINE[:1]) == [0]


def test_every_non_terminal_state_has_a_class() -> None:
    assert set(CLASS_OF_STATE) == {state for state in JobState if not state.is_terminal}


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.sampled_from([state for state in JobState if not state.is_terminal]))),
    st.floats(0, 1e6), st.floats(0, 1e6), st.floats(-1e3, 1e6),
)  # fmt: skip
def test_classes_add_up_to_the_wall_clock_for_any_clock(
    marks: list[tuple[float, JobState]], until_s: float, lost_s: float, stall_s: float
) -> None:
    timeline = [StateMark(at_s, state) for at_s, state in marks]
    within = {TimeClass.RECOMPUTE: lost_s, TimeClass.STALL: stall_s}
    seconds = seconds_by_class(timeline, until_s, within)
    latest = max([until_s, *(mark.at_s for mark in timeline)]) if timeline else 0.0
    wall_s = latest - timeline[0].at_s if timeline else 0.0
    assert sum(seconds.values()) == pytest.approx(wall_s, abs=1e-3)
    assert all(value >= 0 for value in seconds.values())


def test_the_hold_after_a_failure_has_its_own_class() -> None:
    timeline = [
        StateMark(0, JobState.RUNNING),
        StateMark(10, JobState.RUNNING, is_held=True),
        StateMark(11, JobState.DRAINING, is_held=True),
        StateMark(70, JobState.FAILED, is_held=True),
    ]
    seconds = seconds_by_class(timeline, 100)
    assert {kind: value for kind, value in seconds.items() if value} == {TimeClass.PRODUCTIVE: 10, TimeClass.HELD: 60}
    assert device_seconds(seconds, 2)[TimeClass.HELD] == 120


def test_the_cost_of_failures_is_summed_by_reason_and_averaged() -> None:
    incidents = [
        {"reason": "rank_exit", "steps_lost": 1, "durations": {"total": 1.0}},
        {"reason": "rank_exit", "steps_lost": None, "durations": {}},
        {"reason": "node_lost", "steps_lost": 7, "durations": {"total": 8.0}},
        {"reason": "drained", "steps_lost": 0, "durations": {"total": 100.0}},
    ]
    assert steps_lost(incidents) == {"rank_exit": 1, "node_lost": 7, "drained": 0}
    assert mean_recovery_s(incidents) == 4.5, "planned changes and incomplete recoveries do not count"
    assert steps_lost([]) == {} and mean_recovery_s(incidents[1:2]) is None
