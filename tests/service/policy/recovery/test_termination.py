"""Time from SIGTERM to SIGKILL at planned ends."""

import pytest

from regroup.service.policy.recovery.drain_deadlines import release_by_s
from regroup.service.policy.recovery.termination import (
    LONGEST_S,
    function_time_s,
    script_terminates_at_s,
    script_time_s,
)


@pytest.mark.parametrize(
    ("notice_s", "at_s"),
    [(None, float("inf")), (600.0, 480.0), (120.0, 72.0), (60.0, 28.0), (32.0, 0.0), (30.0, 0.0), (5.0, 0.0)],
)
def test_a_script_gets_sigterm_early_enough_for_its_grace(notice_s: float | None, at_s: float) -> None:
    deadline_s = None if notice_s is None else 1000.0 + notice_s
    assert script_terminates_at_s(1000.0, deadline_s, grace_s=30.0) == (1000.0 + at_s if at_s < 1e9 else at_s)


@pytest.mark.parametrize(
    ("left_s", "gets_s"), [(None, 30.0), (600.0, 598.0), (10.0, 8.0), (1.0, 0.0), (-5.0, 0.0), (1e6, LONGEST_S)]
)
def test_a_script_gets_the_notice_that_is_left_or_its_grace(left_s: float | None, gets_s: float) -> None:
    deadline_s = None if left_s is None else 1000.0 + left_s
    assert script_time_s(1000.0, deadline_s, grace_s=30.0) == gets_s


@pytest.mark.parametrize(("left_s", "gets_s"), [(None, 30.0), (600.0, 30.0), (20.0, 10.0), (-5.0, 0.0)])
def test_a_function_leaves_time_for_its_snapshots(left_s: float | None, gets_s: float) -> None:
    deadline_s = None if left_s is None else 1000.0 + left_s
    assert function_time_s(1000.0, deadline_s, grace_s=30.0) == gets_s


def test_a_script_without_other_nodes_is_queued_early_enough_for_its_grace() -> None:
    assert release_by_s(1000.0, 1060.0, step_s=0.0, checkpoint_s=0.0, grace_s=32.0) == 1028.0
    assert release_by_s(1000.0, 1060.0, step_s=0.0, checkpoint_s=0.0) == 1036.0
    assert release_by_s(1000.0, None, step_s=0.0, checkpoint_s=0.0, grace_s=32.0) == float("inf")
