"""What is a hang and what is only slow, for every kind of job; and who stands out."""

from dataclasses import replace

import pytest

from regroup.service.policy.detection.hang import Hang, describe_hang, find_hang, find_outlier_ranks, hang_policy_for
from regroup.workers.contract.messages import Phase, RankActivity

BUILTIN, FUNCTION, SCRIPT = (hang_policy_for(kind, None, None) for kind in ("builtin", "function", "script"))


def dwell(stalled_s: float, phase: str = Phase.FORWARD, *, usual_s: float = 0.2, visits: int = 9, idle_s: float = 1e9,
          step: int = 7) -> RankActivity:  # fmt: skip
    return RankActivity(step, phase, stalled_s, min(idle_s, stalled_s), visits, usual_s)


def test_after_three_usual_times_or_eight_seconds_no_rank_having_moved() -> None:
    assert find_hang({0: dwell(7.9), 1: dwell(100)}, (0, 1), BUILTIN, {}) is None
    assert find_hang({0: dwell(8.1), 1: dwell(100)}, (0, 1), BUILTIN, {}) == Hang(8.1, 8.0, "forward")
    slow = {0: dwell(59, usual_s=20), 1: dwell(59, usual_s=20)}
    assert find_hang(slow, (0, 1), BUILTIN, {}) is None
    assert (
        find_hang({rank: replace(each, stalled_s=61) for rank, each in slow.items()}, (0, 1), BUILTIN, {}) is not None
    )


def test_nothing_is_decided_as_long_as_a_rank_was_not_heard_of() -> None:
    assert find_hang({0: dwell(100)}, (0, 1), BUILTIN, {}) is None
    assert find_hang({}, (), BUILTIN, {}) is None


def test_ranks_that_are_done_are_not_waited_for() -> None:
    assert find_hang({0: dwell(1, Phase.DONE), 1: dwell(9)}, (0, 1), BUILTIN, {}) is not None
    assert find_hang({0: dwell(99, Phase.DONE)}, (0,), BUILTIN, {}) is None


@pytest.mark.parametrize("phase", [Phase.BOOT, Phase.JOIN, Phase.BUILD, Phase.RESTORE, Phase.CHECKPOINT])
def test_what_comes_once_or_waits_for_storage_has_half_an_hour(phase: Phase) -> None:
    for rule in (BUILTIN, FUNCTION, SCRIPT):
        assert find_hang({0: dwell(1799, phase)}, (0,), rule, {}) is None
        assert find_hang({0: dwell(1801, phase)}, (0,), rule, {}) == Hang(1801, 1800.0, phase)


def test_the_first_steps_have_too_unless_an_earlier_generation_has_shown_how_long_they_take() -> None:
    first = {0: dwell(700, visits=2)}
    assert find_hang(first, (0,), BUILTIN, {}) is None
    assert find_hang(first, (0,), BUILTIN, {"forward": 141.0}) is None
    assert find_hang(first, (0,), BUILTIN, {"forward": 139.0}) is not None
    assert find_hang({0: dwell(61, visits=0)}, (0,), BUILTIN, {"forward": 0.1}) == Hang(61, 60.0, "forward")
    assert find_hang({0: dwell(700, Phase.RESTORE)}, (0,), BUILTIN, {"restore": 0.1}) is None


def test_a_function_that_computes_within_a_step_gets_more_time() -> None:
    assert find_hang({0: dwell(9)}, (0,), FUNCTION, {}) is not None
    evaluates = {0: dwell(299, idle_s=0.5), 1: dwell(299)}
    assert find_hang(evaluates, (0, 1), FUNCTION, {}) is None
    assert find_hang({0: dwell(301, idle_s=0.5), 1: dwell(301)}, (0, 1), FUNCTION, {}) is not None


def test_a_script_that_computes_or_prints_is_left_alone() -> None:
    assert find_hang({0: dwell(299)}, (0,), SCRIPT, {}) is None
    assert find_hang({0: dwell(301)}, (0,), SCRIPT, {}) is not None
    assert find_hang({0: dwell(399, usual_s=40)}, (0,), SCRIPT, {}) is None
    assert find_hang({0: dwell(1e6, idle_s=200)}, (0,), SCRIPT, {}) is None
    assert find_hang({0: dwell(1e6, Phase.BUILD, visits=0, idle_s=1000)}, (0,), SCRIPT, {}) is None


@pytest.mark.parametrize("kind", ["builtin", "function", "script"])
def test_times_that_the_spec_gives_are_taken_literally(kind: str) -> None:
    rule = hang_policy_for(kind, 5.0, 20.0)
    assert find_hang({0: dwell(4.9, usual_s=60)}, (0,), rule, {}) is None
    assert find_hang({0: dwell(5.1, usual_s=60, idle_s=0, visits=1)}, (0,), rule, {}) == Hang(5.1, 5.0, "forward")
    before = dwell(19.9, Phase.BUILD, visits=0, idle_s=0)
    assert find_hang({0: before}, (0,), rule, {}) is None
    assert find_hang({0: replace(before, stalled_s=20.1)}, (0,), rule, {}) is not None


def stack(*newest_first: str) -> str:
    other = 'Thread 0x1 (most recent call first):\n  File "/python/threading.py", line 1 in wait\n'
    frames = "".join(f'  File "{file}", line 1 in f\n' for file in newest_first)
    return f"{other}\nCurrent thread 0x2 (most recent call first):\n{frames}"


WAITS = stack("/t/torch/distributed/distributed_c10d.py", "/x/train.py")
SLEEPS = stack("/x/train.py")


def test_who_cannot_answer_stands_out_then_who_is_behind_then_who_is_in_no_collective() -> None:
    alike = {rank: dwell(9) for rank in range(3)}
    stopped = {0: WAITS, 1: "process 5 does not answer: it is stopped by a signal", 2: SLEEPS}
    assert find_outlier_ranks(alike, stopped) == (1,)
    behind = {**alike, 2: dwell(9, step=6)}
    assert find_outlier_ranks(behind, {0: WAITS, 1: WAITS, 2: WAITS}) == (2,)
    assert find_outlier_ranks(alike, {0: WAITS, 1: WAITS, 2: SLEEPS}) == (2,)
    backward = stack("/t/torch/autograd/graph.py", "/x/train.py")
    assert find_outlier_ranks(alike, {0: SLEEPS, 1: backward, 2: WAITS}) == (0,)
    assert find_outlier_ranks(alike, {0: WAITS, 1: WAITS, 2: WAITS}, missing=(1,)) == (1,)
    earlier = {0: dwell(9, Phase.BACKWARD), 1: dwell(9, Phase.BACKWARD), 2: dwell(9)}
    assert find_outlier_ranks(earlier, {}) == (2,)


def test_who_is_left_when_most_have_ended_stands_out() -> None:
    alike = {rank: dwell(9) for rank in range(4)}
    assert find_outlier_ranks(alike, {3: WAITS}, done={0, 1, 2}) == (3,)
    finished = {**alike, 0: dwell(9, Phase.DONE), 1: dwell(9, Phase.DONE)}
    assert find_outlier_ranks(finished, {2: WAITS, 3: WAITS}) == (2, 3)
    assert find_outlier_ranks(alike, {1: WAITS, 2: WAITS, 3: WAITS}, done={0}) == (), "those who wait are not at fault"


def test_nobody_stands_out_where_all_are_alike() -> None:
    alike = {rank: dwell(9) for rank in range(2)}
    for text in (WAITS, SLEEPS, "process 5 does not answer: it is stopped by a signal"):
        assert find_outlier_ranks(alike, dict.fromkeys(alike, text)) == ()


def test_the_summary_says_how_long_where_and_who() -> None:
    hang, dwells = Hang(8.4, 8.0, "backward"), {0: dwell(9), 1: dwell(9)}
    silent = "process 5 does not answer: it is stopped by a signal"
    assert describe_hang(hang, dwells, (), {}) == "no rank made progress for 8 s, more than the 8 s allowed in backward"
    assert describe_hang(hang, dwells, (1,), {1: silent}).endswith(f"; rank 1 stands out: step 7, forward, {silent}")
    assert describe_hang(hang, dwells, (0, 1), {0: SLEEPS}).endswith("; ranks 0, 1 stand out: step 7, forward")
