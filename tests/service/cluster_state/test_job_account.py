"""The account of a job, aggregated from its events."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from regroup.service.cluster_state.job_account import JobAccount
from regroup.service.policy.accounting import TimeClass, goodput
from regroup.service.store.rows.records import Event
from tests.support.inputs.job_rows import JOB


def test_notes_are_counted_by_kind_and_some_update_further_metrics() -> None:
    account = JobAccount(None)  # type: ignore[arg-type]  # The row is not used.
    kinds: list[dict[str, Any]] = [
        {"kind": "loss_spike"}, {"kind": "stale"}, {"kind": "loss_spike"}, {"kind": "snapshot_damaged"},
        {"kind": "environment", "installed": True, "seconds": 3.0},
    ]  # fmt: skip
    for number, data in enumerate(kinds, 1):
        account.record(Event("j", number, "note", 0.0, 1, "supervisor", data))
    assert account.notes == {"loss_spike": 2, "stale": 1, "snapshot_damaged": 1, "environment": 1}
    assert account.snapshots_refused == {"checksum": 1} and account.install_seconds == [3.0]
    assert account.number == len(kinds)


def test_bytes_of_checkpoints_and_of_restores_are_summed() -> None:
    account = JobAccount(None)  # type: ignore[arg-type]  # The row is not used.
    restored = {"kind": "state_restored", "source": "checkpoint", "fetched_bytes": 100, "seconds": 2.0}
    marks: list[tuple[str, dict[str, Any]]] = [
        ("checkpoint", {"step": 4, "duration_s": 3.0, "written_bytes": 70, "write_s": 1.5}),
        ("checkpoint", {"step": 8, "duration_s": 3.0}),
        ("note", restored), ("note", restored), ("note", {**restored, "source": "memory", "fetched_bytes": 7}),
    ]  # fmt: skip
    for number, (kind, data) in enumerate(marks, 1):
        account.record(Event("j", number, kind, 0.0, 1, "supervisor", data))
    assert (account.written_bytes, account.write_s) == (70, 1.5)
    assert account.restored == {"checkpoint": (200, 4.0), "memory": (7, 2.0)}


def states(*marks: tuple[float, str, dict[str, Any]]) -> Mapping[TimeClass, float]:
    """Return the seconds of a job that has lasted 100 s, from its events."""
    account = JobAccount(dataclasses.replace(JOB, step=0))
    for number, (time_s, kind, data) in enumerate(marks, 1):
        account.record(Event("j", number, kind, time_s, 1, "supervisor", data))
    return account.seconds(100.0)


STARTED = (10.0, "state", {"to": "STARTING", "reason": "reserved"})
SCRIPT_RUNS = (20.0, "state", {"to": "RUNNING", "reason": "script_started"})


def test_seconds_follow_each_change_at_the_same_time() -> None:
    account = JobAccount(dataclasses.replace(JOB, step=0))
    account.record(Event("j", 1, "state", 10.0, 1, "supervisor", {"to": "STARTING", "reason": "reserved"}))
    assert account.seconds(100.0) is account.seconds(100.0)
    before = account.seconds(100.0)[TimeClass.STARTING]
    assert account.seconds(101.0)[TimeClass.STARTING] == before + 1
    account.record(Event("j", 2, "state", 30.0, 1, "supervisor", {"to": "RUNNING", "reason": "first_step"}))
    assert account.seconds(100.0)[TimeClass.STARTING] == 20
    account.job = dataclasses.replace(account.job, stall_s=7.0, revision=account.job.revision + 1)
    assert account.seconds(100.0)[TimeClass.STALL] == 7


def test_the_imports_of_a_script_are_not_productive() -> None:
    failed = (70.0, "state", {"to": "FAILED", "reason": "user_error"})
    seconds = states(STARTED, SCRIPT_RUNS, failed)
    assert seconds[TimeClass.PRODUCTIVE] == 0 and seconds[TimeClass.STARTING] == 60
    assert goodput(seconds) == 0


def test_a_script_is_productive_from_its_first_step() -> None:
    resumed = (50.0, "resumed", {"step": 0, "has_step_count": True})
    seconds = states(STARTED, SCRIPT_RUNS, resumed)
    assert (seconds[TimeClass.STARTING], seconds[TimeClass.PRODUCTIVE]) == (40, 50)


def test_the_start_of_a_script_after_a_failure_is_recovery() -> None:
    resumed = (30.0, "resumed", {"step": 0, "has_step_count": True})
    failed = (40.0, "state", {"to": "RECOVERING", "reason": "rank_exit"})
    runs = (45.0, "state", {"to": "RUNNING", "reason": "script_started"})
    again = (60.0, "resumed", {"step": 9, "has_step_count": False})
    seconds = states(STARTED, SCRIPT_RUNS, resumed, failed, runs, again)
    assert seconds[TimeClass.RECOVERING] == 20
    assert seconds[TimeClass.PRODUCTIVE] == 10 + 40


def test_a_job_that_is_stopped_before_a_late_report_does_not_run_again() -> None:
    ended = (40.0, "state", {"to": "CANCELLED", "reason": "cancelled_by_user"})
    late = (50.0, "resumed", {"step": 0, "has_step_count": True})
    assert states(STARTED, SCRIPT_RUNS, ended, late)[TimeClass.PRODUCTIVE] == 0
