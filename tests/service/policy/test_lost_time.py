"""Time and steps that a job lost without an incident, from recorded histories."""

import pytest

from regroup.service.domain.states import JobState
from regroup.service.policy.accounting import StateMark, TimeClass, goodput, seconds_by_class
from regroup.service.policy.lost_time import (
    SILENCE_S,
    GenerationProgress,
    repeated_seconds,
    unexplained_seconds,
    with_unexplained,
)

CLUSTER_LOST = [
    StateMark(0, JobState.STARTING),
    StateMark(10, JobState.RUNNING),
    StateMark(115, JobState.QUEUED),
    StateMark(116, JobState.STARTING),
    StateMark(125, JobState.RUNNING),
    StateMark(160, JobState.SUCCEEDED),
]
"""Ray failed at 35 s, which was detected 80 s later. 20 seconds of steps were repeated."""
FIRST = GenerationProgress(1, 9, 10.5, 35, repeated=152, repeated_s=20.0)
SECOND = GenerationProgress(2, 124, 125, 159)


def lost(
    timeline: list[StateMark], *progress: GenerationProgress, until_s: float = 1000.0, **more: object
) -> tuple[float, float]:
    found = unexplained_seconds(timeline, progress, more.pop("explained", ()), until_s, **more)  # type: ignore[arg-type]
    return found[TimeClass.DETECTING], found[TimeClass.RECOVERING]


def test_the_time_after_the_last_step_of_a_lost_cluster_is_not_productive() -> None:
    assert lost(CLUSTER_LOST, FIRST, SECOND) == (80, 0)
    spent = unexplained_seconds(CLUSTER_LOST, (FIRST, SECOND), (), 160)
    within = {**spent, TimeClass.RECOMPUTE: repeated_seconds((FIRST, SECOND), 0, 0.1)}
    seconds = seconds_by_class(CLUSTER_LOST, 160, within)
    assert goodput(seconds_by_class(CLUSTER_LOST, 160)) == pytest.approx(140 / 159), "as it was reported before"
    assert goodput(seconds) == pytest.approx(40 / 159)
    assert sum(seconds.values()) == 160


def test_an_incident_accounts_for_its_own_time() -> None:
    assert lost(CLUSTER_LOST, FIRST, SECOND, explained={1}) == (0, 0)


def test_a_generation_that_was_replaced_within_one_state_is_seen_in_the_steps() -> None:
    timeline = [StateMark(0, JobState.STARTING), StateMark(10, JobState.RUNNING), StateMark(100, JobState.SUCCEEDED)]
    replaced = GenerationProgress(2, 50, 53, 100)
    assert lost(timeline, GenerationProgress(1, 9, 10, 40), replaced) == (10, 3)
    never_formed = GenerationProgress(2, 50)
    assert lost(timeline, GenerationProgress(1, 9, 10, 40), never_formed, GenerationProgress(3, 60, 65, 99)) == (10, 15)
    assert lost(timeline, GenerationProgress(1, 9, 10, 40), GenerationProgress(2, 50), until_s=70) == (10, 20)


def test_a_job_that_queued_again_and_never_trained_again_lost_its_last_seconds() -> None:
    timeline = [*CLUSTER_LOST[:3], StateMark(200, JobState.CANCELLED)]
    assert lost(timeline, FIRST) == (80, 0)
    assert lost(timeline, FIRST, explained={1}) == (0, 0)
    without_steps = GenerationProgress(1, 9)
    assert lost(timeline, without_steps) == (0, 0), "a program without steps, of a server that stored no reports"
    assert lost(timeline, without_steps, reported_s=95.0) == (20, 0)


def test_a_live_job_without_reports_is_not_productive_until_it_reports_again() -> None:
    live = CLUSTER_LOST[:2]
    assert lost(live, FIRST, until_s=35 + SILENCE_S) == (0, 0)
    assert lost(live, FIRST, until_s=200.0) == (165, 0)
    assert lost(live, FIRST, until_s=200.0, reported_s=190.0) == (0, 0), "it evaluates, or its steps are long"
    assert lost(live, until_s=200.0) == (0, 0)


def test_a_job_that_ends_by_itself_may_work_after_its_last_step() -> None:
    timeline = [*CLUSTER_LOST[:2], StateMark(90, JobState.DRAINING), StateMark(95, JobState.CANCELLED)]
    assert lost(timeline, FIRST) == (0, 0)
    assert lost([*CLUSTER_LOST[:2], StateMark(90, JobState.SUCCEEDED)], FIRST) == (0, 0)


def test_repeated_steps_count_with_their_own_duration() -> None:
    progress = (GenerationProgress(1, 0, repeated=3, repeated_s=6.0, untimed=1), GenerationProgress(2, 5))
    assert repeated_seconds(progress, 0, 1.5) == 7.5
    assert repeated_seconds(progress, 5, 1.5) == 10.5, "two recorded steps have no row"


def test_repeated_steps_that_no_incident_recorded_have_a_reason_of_their_own() -> None:
    progress = (GenerationProgress(1, 0, repeated=152), GenerationProgress(2, 5))
    assert with_unexplained({}, progress, "unknown") == {"unknown": 152}
    assert with_unexplained({"hang": 100}, progress, "unknown") == {"hang": 100, "unknown": 52}
    assert with_unexplained({"hang": 152}, progress, "unknown") == {"hang": 152}
