"""Hangs and slow steps of each kind of job, and the outlier ranks of a hang."""

from dataclasses import replace

import pytest

from regroup.service.policy.detection.hang import Hang, describe_hang, find_hang, find_outlier_ranks, hang_policy_for
from regroup.workers.contract.messages import Phase
from regroup.workers.contract.rank_activity import RankActivity

BUILTIN, FUNCTION, SCRIPT = (hang_policy_for(kind, None, None) for kind in ("builtin", "function", "script"))


def activity(
    stalled_s: float,
    phase: str = Phase.FORWARD,
    *,
    usual_s: float = 0.2,
    visits: int = 9,
    idle_s: float = 1e9,
    step: int = 7,
) -> RankActivity:
    return RankActivity(step, phase, stalled_s, min(idle_s, stalled_s), visits, usual_s)


def test_a_hang_is_three_usual_times_or_8_s_without_progress_of_any_rank() -> None:
    assert find_hang({0: activity(7.9), 1: activity(100)}, (0, 1), BUILTIN, {}) is None
    assert find_hang({0: activity(8.1), 1: activity(100)}, (0, 1), BUILTIN, {}) == Hang(8.1, 8.0, "forward")
    slow = {0: activity(59, usual_s=20), 1: activity(59, usual_s=20)}
    assert find_hang(slow, (0, 1), BUILTIN, {}) is None
    assert (
        find_hang({rank: replace(each, stalled_s=61) for rank, each in slow.items()}, (0, 1), BUILTIN, {}) is not None
    )


def test_no_hang_is_reported_before_each_rank_has_reported() -> None:
    assert find_hang({0: activity(100)}, (0, 1), BUILTIN, {}) is None
    assert find_hang({}, (), BUILTIN, {}) is None


def test_finished_ranks_do_not_delay_the_detection() -> None:
    assert find_hang({0: activity(1, Phase.DONE), 1: activity(9)}, (0, 1), BUILTIN, {}) is not None
    assert find_hang({0: activity(99, Phase.DONE)}, (0,), BUILTIN, {}) is None


@pytest.mark.parametrize("phase", [Phase.BOOT, Phase.JOIN, Phase.BUILD, Phase.RESTORE, Phase.CHECKPOINT])
def test_unique_phases_and_phases_with_storage_have_half_an_hour(phase: Phase) -> None:
    for rule in (BUILTIN, FUNCTION, SCRIPT):
        assert find_hang({0: activity(1799, phase)}, (0,), rule, {}) is None
        assert find_hang({0: activity(1801, phase)}, (0,), rule, {}) == Hang(1801, 1800.0, phase)


def test_first_steps_have_half_an_hour_unless_an_earlier_one_was_measured() -> None:
    first = {0: activity(700, visits=2)}
    assert find_hang(first, (0,), BUILTIN, {}) is None
    assert find_hang(first, (0,), BUILTIN, {"forward": 141.0}) is None
    assert find_hang(first, (0,), BUILTIN, {"forward": 139.0}) is not None
    assert find_hang({0: activity(61, visits=0)}, (0,), BUILTIN, {"forward": 0.1}) == Hang(61, 60.0, "forward")
    assert find_hang({0: activity(700, Phase.RESTORE)}, (0,), BUILTIN, {"restore": 0.1}) is None


def test_a_function_that_computes_within_a_step_has_more_time() -> None:
    assert find_hang({0: activity(9)}, (0,), FUNCTION, {}) is not None
    evaluates = {0: activity(299, idle_s=0.5), 1: activity(299)}
    assert find_hang(evaluates, (0, 1), FUNCTION, {}) is None
    assert find_hang({0: activity(301, idle_s=0.5), 1: activity(301)}, (0, 1), FUNCTION, {}) is not None
    slow = activity(399, usual_s=40, idle_s=0.5)
    assert find_hang({0: slow}, (0,), FUNCTION, {}) is None
    assert find_hang({0: replace(slow, stalled_s=401)}, (0,), FUNCTION, {}) == Hang(401, 400.0, "forward")


def test_a_script_that_computes_or_prints_does_not_hang() -> None:
    assert find_hang({0: activity(299)}, (0,), SCRIPT, {}) is None
    assert find_hang({0: activity(301)}, (0,), SCRIPT, {}) is not None
    assert find_hang({0: activity(399, usual_s=40)}, (0,), SCRIPT, {}) is None
    assert find_hang({0: activity(401, usual_s=40)}, (0,), SCRIPT, {}) == Hang(401, 400.0, "forward"), "ten usual steps"
    assert find_hang({0: activity(1e6, idle_s=200)}, (0,), SCRIPT, {}) is None
    assert find_hang({0: activity(1e6, Phase.BUILD, visits=0, idle_s=1000)}, (0,), SCRIPT, {}) is None


@pytest.mark.parametrize("kind", ["builtin", "function", "script"])
def test_timeouts_of_the_spec_apply_exactly(kind: str) -> None:
    rule = hang_policy_for(kind, 5.0, 20.0)
    assert find_hang({0: activity(4.9, usual_s=60)}, (0,), rule, {}) is None
    assert find_hang({0: activity(5.1, usual_s=60, idle_s=0, visits=1)}, (0,), rule, {}) == Hang(5.1, 5.0, "forward")
    before = activity(19.9, Phase.BUILD, visits=0, idle_s=0)
    assert find_hang({0: before}, (0,), rule, {}) is None
    assert find_hang({0: replace(before, stalled_s=20.1)}, (0,), rule, {}) is not None


def stack(*newest_first: str) -> str:
    other = 'Thread 0x1 (most recent call first):\n  File "/python/threading.py", line 1 in wait\n'
    frames = "".join(f'  File "{file}", line 1 in f\n' for file in newest_first)
    return f"{other}\nCurrent thread 0x2 (most recent call first):\n{frames}"


WAITS = stack("/t/torch/distributed/distributed_c10d.py", "/x/train.py")
SLEEPS = stack("/x/train.py")


def test_outliers_are_stopped_ranks_then_late_ones_then_ranks_in_user_code() -> None:
    alike = {rank: activity(9) for rank in range(3)}
    stopped = {0: WAITS, 1: "process 5 does not answer: it is stopped by a signal", 2: SLEEPS}
    assert find_outlier_ranks(alike, stopped) == (1,)
    behind = {**alike, 2: activity(9, step=6)}
    assert find_outlier_ranks(behind, {0: WAITS, 1: WAITS, 2: WAITS}) == (2,)
    assert find_outlier_ranks(alike, {0: WAITS, 1: WAITS, 2: SLEEPS}) == (2,)
    backward = stack("/t/torch/autograd/graph.py", "/x/train.py")
    assert find_outlier_ranks(alike, {0: SLEEPS, 1: backward, 2: WAITS}) == (0,)
    assert find_outlier_ranks(alike, {0: WAITS, 1: WAITS, 2: WAITS}, missing=(1,)) == (1,)
    earlier = {0: activity(9, Phase.BACKWARD), 1: activity(9, Phase.BACKWARD), 2: activity(9)}
    assert find_outlier_ranks(earlier, {}) == (2,)


def test_ranks_that_remain_after_most_have_ended_are_outliers() -> None:
    alike = {rank: activity(9) for rank in range(4)}
    assert find_outlier_ranks(alike, {3: WAITS}, done={0, 1, 2}) == (3,)
    finished = {**alike, 0: activity(9, Phase.DONE), 1: activity(9, Phase.DONE)}
    assert find_outlier_ranks(finished, {2: WAITS, 3: WAITS}) == (2, 3)
    assert find_outlier_ranks(alike, {1: WAITS, 2: WAITS, 3: WAITS}, done={0}) == (), "waiting ranks are not outliers"


def test_identical_ranks_have_no_outlier() -> None:
    alike = {rank: activity(9) for rank in range(2)}
    for text in (WAITS, SLEEPS, "process 5 does not answer: it is stopped by a signal"):
        assert find_outlier_ranks(alike, dict.fromkeys(alike, text)) == ()


def test_the_summary_has_duration_phase_and_outlier_ranks() -> None:
    hang, activities = Hang(8.4, 8.0, "backward"), {0: activity(9), 1: activity(9)}
    silent = "process 5 does not answer: it is stopped by a signal"
    assert (
        describe_hang(hang, activities, (), {})
        == "no rank made progress for 8 s, more than the 8 s allowed in backward"
    )
    assert describe_hang(hang, activities, (1,), {1: silent}).endswith(
        f"; rank 1 stands out: step 7, forward, {silent}"
    )
    assert describe_hang(hang, activities, (0, 1), {0: SLEEPS}).endswith("; ranks 0, 1 stand out: step 7, forward")
