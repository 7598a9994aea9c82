"""Notices that belong together, and how long a job may take its time over them."""

import pytest

from regroup.service.domain.states import Reason
from regroup.service.policy.recovery.budget import decide_recovery
from regroup.service.policy.recovery.classify import Cause
from regroup.service.policy.recovery.drain_deadlines import (
    DrainNotice,
    change_due_s,
    earliest_deadline_s,
    excuse_announced_loss,
    merge_notices,
    release_by_s,
    schedule_drain,
)

FOR_EVER = float("inf")


def notice(node: str, at_s: float, deadline_s: float | None = None, why: str = "") -> DrainNotice:
    return DrainNotice(node, node, at_s, deadline_s, why)


def test_two_notices_of_one_node_are_one_with_the_earlier_deadline() -> None:
    found = merge_notices(
        [notice("a", 5, 50, "later"), notice("b", 4), notice("a", 2, 90, "first"), notice("b", 3, 30)]
    )
    assert found == {"a": notice("a", 2, 50, "first"), "b": notice("b", 3, 30)}


def test_notices_of_one_maintenance_are_one_change() -> None:
    assert change_due_s([notice("a", 100.0, 200.0)]) == 102.0
    assert change_due_s([notice("b", 101.5, 160.0), notice("a", 100.0)]) == 102.0, "counted from the first"
    assert earliest_deadline_s([notice("b", 101.5, 160.0), notice("a", 100.0), notice("c", 101.0, 130.0)]) == 130.0


@pytest.mark.parametrize(("deadline_s", "due_s"), [(111.0, 101.0), (110.0, 100.0), (103.0, 100.0), (None, 102.0)])
def test_nobody_waits_for_more_where_there_is_no_time(deadline_s: float | None, due_s: float) -> None:
    assert change_due_s([notice("a", 100.0, deadline_s)]) == due_s


@pytest.mark.parametrize(
    ("left_s", "stop_s", "cut_s"),
    [
        (120.0, 72.0, 96.0),
        (30.0, 18.0, 24.0),
        (12.0, 2.0, 7.0),  # five seconds at least are for handing over
        (4.0, 0.0, 2.0),  # or half of what there is
        (0.0, 0.0, 0.0),
        (-3.0, -3.0, -3.0),  # it came too late
        (3600.0, 3480.0, 3540.0),  # and a minute at most
    ],
)
def test_time_is_kept_for_handing_over(left_s: float, stop_s: float, cut_s: float) -> None:
    found = schedule_drain(1000.0, 1000.0 + left_s)
    assert (found.stop_s - 1000.0, found.kill_s - 1000.0) == (stop_s, cut_s)


def test_without_a_deadline_there_is_all_the_time() -> None:
    assert (schedule_drain(1.0, None).stop_s, schedule_drain(1.0, None).kill_s) == (FOR_EVER, FOR_EVER)
    assert release_by_s(1.0, None, step_s=1.0, checkpoint_s=60.0) == FOR_EVER


def test_a_job_without_another_node_leaves_in_time_to_save_and_not_sooner() -> None:
    assert release_by_s(1000.0, 1120.0, step_s=0.0, checkpoint_s=0.0) == 1072.0
    assert release_by_s(1000.0, 1120.0, step_s=1.0, checkpoint_s=10.0) == 1050.0
    assert release_by_s(1000.0, 1120.0, step_s=1.0, checkpoint_s=600.0) == 1000.0, "at once"


def test_an_announced_loss_is_no_failure_and_charged_to_nothing() -> None:
    lost = Cause(Reason.AGENT_LOST, "agent on node a lost", 5.0, None, "a")
    found = excuse_announced_loss(lost, {"a": "node a is drained: disks"})
    assert found.reason is Reason.DRAINED and "disks" in found.summary
    verdict = decide_recovery(found, (), {}, window_s=600, refill_steps=10, now_s=5.0, step=3)
    assert verdict.is_recovery and verdict.backoff_s == 0
    assert excuse_announced_loss(lost, {"b": "node b is drained"}) == lost
    killed = Cause(Reason.RANK_EXIT, "rank 0 killed by signal 9", 5.0, 0, "a")
    assert excuse_announced_loss(killed, {"a": "node a is drained"}) == killed, (
        "that one node leaves excuses nothing else"
    )
