"""A status changes the columns that differ, and a job without devices has neither ranks nor a save."""

from dataclasses import replace
from typing import Any

from regroup.service.domain.states import JobState
from regroup.service.store.jobs.supervisor_report import changes_of_status
from tests.support.inputs.job_rows import JOB

SAVE: dict[str, Any] = {"step": 40, "generation": 1, "message": "m", "done_bytes": 1, "total_bytes": 4}
RUNNING = replace(JOB, state=JobState.RUNNING, save=SAVE, rank_phases={"0": [3, "forward"]}, goodput=0.5)


def test_only_what_differs_is_changed() -> None:
    assert changes_of_status(RUNNING, {"goodput": 0.5, "save": dict(SAVE), "ranks": {"0": [3, "forward"]}}) == {}
    status = {"goodput": 0.6, "save": {**SAVE, "done_bytes": 2}, "ranks": {"0": [4, "forward"]}}
    changes = changes_of_status(RUNNING, status)
    assert changes == {"goodput": 0.6, "save": {**SAVE, "done_bytes": 2}, "rank_phases": {"0": [4, "forward"]}}


def test_a_status_without_ranks_and_save_keeps_them() -> None:
    assert changes_of_status(RUNNING, {"ranks": None}) == {}


def test_the_end_of_a_save_is_none() -> None:
    assert changes_of_status(RUNNING, {"save": None}) == {"save": None}


def test_a_job_without_devices_has_neither() -> None:
    ended = replace(RUNNING, state=JobState.SUCCEEDED)
    assert changes_of_status(ended, {"save": SAVE, "ranks": {"0": [3, "forward"]}}) == {"save": None, "rank_phases": {}}


def test_values_that_json_cannot_store_are_replaced() -> None:
    changes = changes_of_status(RUNNING, {"save": {**SAVE, "bytes_per_s": float("inf")}, "goodput": float("nan")})
    assert changes == {"save": {**SAVE, "bytes_per_s": None}}
