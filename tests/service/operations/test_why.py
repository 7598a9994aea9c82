"""The explanation of a job's state. The function is pure, so each case is a value."""

import dataclasses
from typing import Any

import pytest

from regroup.service.domain.states import TERMINAL_BY_REASON, JobState, Reason
from regroup.service.operations.why import ADVICE_BY_REASON, Why
from regroup.service.operations.why import explain as explain_whole
from regroup.service.planner.host_memory import HostMemory
from regroup.service.policy.accounting import StateMark, TimeClass, seconds_by_class
from regroup.service.store.rows.records import STEPS_COUNTED, Condition, Incident, JobRow, Step
from tests.support.inputs.job_rows import JOB

RUNNING = dataclasses.replace(JOB, state=JobState.RUNNING, reason="first_step", step=50, generation=2)


def rows(*durations_s: float, stall_s: float = 0.0) -> list[Step]:
    fields: dict[str, Any] = {"loss": 1.0, "tokens": 1, "samples": 1, "samples_hash": 0, "learning_rate": 0.1}
    return [
        Step(n, 1, n, 0.0, duration, grad_norm=None, validation_loss=None, stall_s=stall_s, **fields)
        for n, duration in enumerate(durations_s, 1)
    ]


NO_TIME = seconds_by_class([], until_s=0)


def explain(
    job: JobRow, incidents: list[Incident], recent: list[Step], position: int | None, now: float, seconds: Any = NO_TIME
) -> Why:
    return explain_whole(job, incidents, recent, position, seconds, now)


def test_a_queued_job_shows_its_cause():
    no_capacity = Condition("Placeable", False, "no_capacity", "needs 4 CPUs, 2 are free")
    why = explain(dataclasses.replace(JOB, conditions=(no_capacity,)), [], [], 3, now=70.0)
    assert why.summary == "Queued for 60 s: needs 4 CPUs, 2 are free"
    assert why.advice == ("Placeable: needs 4 CPUs, 2 are free",)
    closed = Condition("Placeable", False, "nodes_closed", "local-1 is quarantined")
    why = explain(dataclasses.replace(JOB, conditions=(closed,)), [], [], 0, now=70.0)
    assert why.advice[1].startswith("`regroup nodes` shows why")
    assert explain(JOB, [], [], 3, now=70.0).summary == "Queued for 60 s, 3 jobs ahead"


def test_a_starting_job_shows_its_phase():
    starting = dataclasses.replace(JOB, state=JobState.STARTING, phase={"phase": "data", "message": "3 of 9 files"})
    assert explain(starting, [], [], None, now=0.0).summary == "Starting: data 3 of 9 files"


def test_a_job_that_restores_shows_the_progress() -> None:
    phase = {"phase": "restoring", "message": "restoring state from checkpoint: 1.2 of 4.0 GB, 310 MB/s"}
    starting = dataclasses.replace(JOB, state=JobState.STARTING, phase=phase)
    assert explain(starting, [], [], None, now=0.0).summary == f"Starting: {phase['message']}"
    recovering = dataclasses.replace(RUNNING, state=JobState.RECOVERING, reason="rank_exit", phase=phase)
    summary = explain(recovering, [], [], None, now=0.0).summary
    assert summary.startswith("RECOVERING at step 50") and summary.endswith(f"; {phase['message']}")


def test_a_job_states_its_host_memory_and_a_shortage() -> None:
    memory = HostMemory(8, 4, 20e9, 0.0, 1e12)
    found = explain_whole(RUNNING, [], [], None, NO_TIME, 0.0, host_memory=memory)
    assert found.host_memory == "20 GB per rank: 4 sets of 5 GB for snapshots and mirrors" and not found.advice
    short = dataclasses.replace(memory, node_bytes=1e11)
    (advice,) = explain_whole(RUNNING, [], [], None, NO_TIME, 0.0, host_memory=short).advice
    assert "the smallest node has 100 GB: set snapshot.mirror: off" in advice
    ended = dataclasses.replace(RUNNING, state=JobState.SUCCEEDED, reason="completed")
    assert not [
        each for each in explain_whole(ended, [], [], None, NO_TIME, 0.0, host_memory=short).advice if "GB" in each
    ]


def test_a_job_that_writes_a_checkpoint_shows_the_progress() -> None:
    progress = "writing checkpoint of step 40: 1.2 of 4.0 GB, 310 MB/s"
    writing = dataclasses.replace(RUNNING, save={"step": 40, "message": progress})
    summary = explain(writing, [], [], None, now=0.0).summary
    assert summary.startswith("RUNNING at step 50") and summary.endswith(f"; {progress}")


def test_a_job_that_lost_time_names_the_causes():
    cost = {"reason": "rank_exit", "steps_lost": 2, "durations": {"total": 30.0}}
    incident = Incident("i1", 1, "rank_exit", 0.0, cost)
    spent = {**NO_TIME, TimeClass.STARTING: 10.0, TimeClass.PRODUCTIVE: 50.0, TimeClass.RECOMPUTE: 15.0}
    why = explain(RUNNING, [incident], rows(1.0), None, 0.0, {**spent, TimeClass.RECOVERING: 25.0})
    assert (why.recovery_s, why.mean_recovery_s, why.goodput) == (30.0, 30.0, 0.5)
    assert why.steps_lost == {"rank_exit": 2}
    assert why.advice == ("1 incident took 40% of its time with devices: rank_exit.",)
    assert explain(RUNNING, [incident], rows(1.0), None, 0.0, {**NO_TIME, TimeClass.STARTING: 100.0}).advice == ()


def test_the_start_of_a_healthy_job_is_not_reported_as_bad_goodput():
    timeline = [StateMark(0, JobState.QUEUED), StateMark(100, JobState.STARTING), StateMark(115, JobState.RUNNING)]
    early = explain(RUNNING, [], rows(1.0), None, 0.0, seconds_by_class(timeline, until_s=120))
    assert early.goodput is None and early.seconds[TimeClass.STARTING] == 15
    later = explain(RUNNING, [], rows(1.0), None, 0.0, seconds_by_class(timeline, until_s=160))
    assert later.goodput == 0.75
    timeline.append(StateMark(120, JobState.SUCCEEDED))
    ended = dataclasses.replace(RUNNING, state=JobState.SUCCEEDED, reason=Reason.COMPLETED)
    assert explain(ended, [], rows(1.0), None, 0.0, seconds_by_class(timeline, until_s=1e9)).goodput == 0.25


def test_advice_for_a_job_that_waits_for_snapshots_is_to_take_fewer():
    why = explain(RUNNING, [], rows(1.0, 1.0, stall_s=0.1), None, now=0.0)
    assert why.stall_ratio == pytest.approx(0.1)
    assert "snapshot.every_steps" in why.advice[0]
    assert explain(RUNNING, [], rows(1.0, 1.0, stall_s=0.01), None, now=0.0).advice == ()


def test_a_job_that_became_slow_gets_advice():
    assert "newest steps" in explain(RUNNING, [], rows(*[1.0] * 20, *[2.0] * 5), None, now=0.0).advice[0]
    assert explain(RUNNING, [], rows(*[1.0] * 20, 2.0), None, now=0.0).advice == ()


def test_every_failure_reason_has_advice():
    assert set(ADVICE_BY_REASON) == {
        reason for reason, state in TERMINAL_BY_REASON.items() if state is not JobState.SUCCEEDED
    }


def test_goodput_needs_a_step() -> None:
    seconds = {**NO_TIME, TimeClass.STARTING: 50.0, TimeClass.PRODUCTIVE: 50.0}
    failed = dataclasses.replace(RUNNING, state=JobState.FAILED, reason="user_error")
    assert explain(failed, [], [], None, now=100.0, seconds=seconds).goodput == 0.5
    assert explain(dataclasses.replace(failed, step=0), [], [], None, now=100.0, seconds=seconds).goodput is None


def test_steps_that_were_counted_twice_are_not_compared_with_the_total() -> None:
    uncounted = Condition(STEPS_COUNTED, False, "no_step_count", "steps count twice")
    ended = dataclasses.replace(
        RUNNING, state=JobState.SUCCEEDED, reason="completed", step=9252, conditions=(uncounted,)
    )
    why = explain(ended, [], [], None, now=100.0)
    assert why.summary == "Ended SUCCEEDED at 9252 steps, some of them repeated (completed)"


def test_short_steps_have_digits() -> None:
    why = explain(RUNNING, [], rows(*[0.003] * 20, *[0.02] * 5), None, now=100.0)
    assert any("The newest steps take 20 ms, earlier steps took 3 ms." in each for each in why.advice)
