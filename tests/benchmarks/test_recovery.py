"""Tests of the figures that the recovery benchmark computes from recorded times."""

from typing import Any

import pytest

from benchmarks.arms import torchft_arm
from benchmarks.arms.driven import read_trial
from benchmarks.recovery import result
from benchmarks.trials.trial import KillPoint, Trial

KILL_POINT = KillPoint(rank=2, step=14, phase="backward")


def noted(*items: tuple[float, str, int | None]) -> list[dict[str, Any]]:
    return [{"time_s": at, "kind": kind} | ({} if step is None else {"step": step}) for at, kind, step in items]


def trial(arm: str, submit: float, kill: float, lost: int = 0, digest: str = "same") -> Trial:
    return Trial(arm, KILL_POINT, submit, kill, kill, lost, {"digest": digest})


def test_ray_train_times_run_from_submit_and_kill_to_steps_of_the_new_group() -> None:
    times = noted(
        (0.0, "launched", None), (5.0, "submit", None), (25.0, "start", 0), (26.0, "step", 1), (27.0, "step", 10),
        (28.0, "step", 12),
        (28.5, "kill", 14),
        (28.6, "step", 13),  # all ranks had finished: rank 0 recorded it late
        (48.0, "start", 10), (49.0, "step", 11), (50.0, "step", 13), (51.0, "step", 14),
    )  # fmt: skip
    figures = read_trial("ray_train", KILL_POINT, times)
    assert figures.submit_to_first_step_s == 21.0
    assert figures.kill_to_first_step_s == pytest.approx(20.5)
    assert figures.kill_to_new_step_s == pytest.approx(22.5)
    assert figures.steps_lost == 3
    assert figures.details == {"launch_to_submit_s": 5.0, "resumed_after_step": 10}


def test_ratios_divide_medians_by_those_of_regroup() -> None:
    trials = [
        *(trial("regroup", 3.0, kill) for kill in (0.5, 1.0, 9.0)),
        *(trial("ray_train", 24.0, kill) for kill in (18.0, 20.0, 22.0)),
        trial("ray_train_tuned", 21.0, 12.0),
    ]
    document = result(trials, [], {"digest": "same"})
    assert document["ratio"]["kill_to_first_step"] == 20.0
    assert document["ratio"]["submit_to_first_step"] == 8.0
    assert document["ratio_tuned"]["kill_to_first_step"] == 12.0
    assert document["regroup"] == {"steps_lost_max": 0, "bitwise_equal": True}
    assert len(document["trials"]) == 7


def test_torchft_recovers_with_the_first_full_step_after_the_replica_restarts() -> None:
    def step(at: float, number: int, of: int) -> dict[str, Any]:
        return {"time_s": at, "kind": "step", "step": number, "of": of}

    times = [
        step(4.0, 1, 2), step(5.0, 2, 4), step(6.0, 13, 4),
        {"time_s": 6.1, "kind": "kill"},
        step(6.2, 13, 4),  # the other replicas recorded it late
        step(6.5, 14, 3), {"time_s": 8.0, "kind": "start"}, step(8.1, 15, 3), step(8.6, 16, 4),
    ]  # fmt: skip
    found = torchft_arm.read_trial("torchft", KILL_POINT, times, submitted=1.0)
    assert found.submit_to_first_step_s == 4.0 and found.kill_to_first_step_s == pytest.approx(0.4)
    assert found.kill_to_full_strength_s == pytest.approx(2.5) and found.details["steps_with_fewer"] == 2
    document = result([trial("regroup", 3.0, 0.5), found], [], {"digest": "same"})
    assert document["ratio_torchft"]["full_strength"] == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("digests", "failures"),
    [(["same", "other"], []), (["same"], ["regroup: job ended FAILED"])],
)
def test_one_different_digest_or_one_failed_job_is_not_equal(digests: list[str], failures: list[str]) -> None:
    trials = [trial("regroup", 3.0, 0.5, digest=digest) for digest in digests]
    assert result(trials, failures, {"digest": "same"})["regroup"]["bitwise_equal"] is False


def test_the_maximum_of_the_lost_steps_counts() -> None:
    trials = [trial("regroup", 3.0, 0.5, lost=lost) for lost in (0, 2, 1)]
    assert result(trials, [], {"digest": "same"})["regroup"]["steps_lost_max"] == 2
