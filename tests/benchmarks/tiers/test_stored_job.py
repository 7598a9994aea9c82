"""Tests of the figures of a job that restores from a checkpoint."""

from typing import Any

import pytest

from benchmarks.tiers.stored_job import read_job
from benchmarks.trials.trial import TrialError

SAVED = [
    {"step": step, "size_bytes": 500, "duration_s": 1.0 + step, "stall_s": stall_s}
    for step, stall_s in ((9, 0.3), (3, 0.9), (6, 0.2), (13, None))
]


EVENTS = [
    {"time_s": time_s, "data": {"kind": "state_restored", "source": source, "waited_s": waited_s}}
    for time_s, source, waited_s in ((101.9, "checkpoint", 0.5), (101.8, "checkpoint", 0.2), (90.0, "memory", 0.1))
]


def finished(*actions: str) -> dict[str, Any]:
    times = {"formed_s": 100.5, "restored_s": 102.0}
    return {"incidents": [{"recovery_action": action, "times": times} for action in actions]}


def test_the_last_checkpoint_and_the_stalls_after_the_first() -> None:
    found = read_job(finished("disk"), SAVED, EVENTS, idle=True, read_bytes_per_s=7.0)
    assert (found.checkpoint_bytes, found.write_s, found.restored_s) == (500, 14.0, 1.5)
    assert found.read_s == pytest.approx(0.4), "the last rank asked at 101.6"
    assert found.blocked_s == (0.2, 0.3) and found.read_bytes_per_s == 7.0


def test_a_restore_from_memory_is_an_error() -> None:
    with pytest.raises(TrialError, match="respawn"):
        read_job(finished("respawn"), SAVED, EVENTS, idle=True, read_bytes_per_s=7.0)


def test_a_job_without_stalls_of_checkpoints_is_an_error() -> None:
    with pytest.raises(TrialError, match="4 checkpoints have 1 measured stalls"):
        read_job(
            finished("disk"),
            [{**each, "stall_s": each["stall_s"] if each["step"] == 9 else None} for each in SAVED],
            EVENTS,
            idle=True,
            read_bytes_per_s=7.0,
        )


def test_a_restore_that_no_node_reports_is_an_error() -> None:
    with pytest.raises(TrialError, match="no node reports it"):
        read_job(finished("disk"), SAVED, EVENTS[2:], idle=True, read_bytes_per_s=7.0)
