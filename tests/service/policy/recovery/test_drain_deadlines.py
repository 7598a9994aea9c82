"""Drain notices: merging them, and the times at which a job must stop and release its nodes."""

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

NEVER = float("inf")


def notice(node: str, at_s: float, deadline_s: float | None = None, why: str = "") -> DrainNotice:
    return DrainNotice(node, node, at_s, deadline_s, why)


def test_notices_of_one_node_are_merged_with_the_earlier_deadline() -> None:
    found = merge_notices(
        [notice("a", 5, 50, "later"), notice("b", 4), notice("a", 2, 90, "first"), notice("b", 3, 30)]
    )
    assert found == {"a": notice("a", 2, 50, "first"), "b": notice("b", 3, 30)}


def test_notices_of_one_maintenance_become_one_change() -> None:
    assert change_due_s([notice("a", 100.0, 200.0)]) == 102.0
    assert change_due_s([notice("b", 101.5, 160.0), notice("a", 100.0)]) == 102.0, "counted from the first notice"
    assert earliest_deadline_s([notice("b", 101.5, 160.0), notice("a", 100.0), notice("c", 101.0, 130.0)]) == 130.0


@pytest.mark.parametrize(("deadline_s", "due_s"), [(111.0, 101.0), (110.0, 100.0), (103.0, 100.0), (None, 102.0)])
def test_a_near_deadline_shortens_the_wait_for_further_notices(deadline_s: float | None, due_s: float) -> None:
    assert change_due_s([notice("a", 100.0, deadline_s)]) == due_s


@pytest.mark.parametrize(
    ("left_s", "stop_s", "cut_s"),
    [
        (120.0, 72.0, 96.0),
        (30.0, 18.0, 24.0),
        (12.0, 2.0, 7.0),  # At least 5 s are for the transfer.
        (4.0, 0.0, 2.0),  # Or half of the remaining time.
        (0.0, 0.0, 0.0),
        (-3.0, -3.0, -3.0),  # The notice is late.
        (3600.0, 3480.0, 3540.0),  # At most 1 min.
    ],
)
def test_a_part_of_the_time_is_reserved_for_the_transfer(left_s: float, stop_s: float, cut_s: float) -> None:
    found = schedule_drain(1000.0, 1000.0 + left_s)
    assert (found.stop_s - 1000.0, found.kill_s - 1000.0) == (stop_s, cut_s)


def test_without_a_deadline_the_time_is_unlimited() -> None:
    assert (schedule_drain(1.0, None).stop_s, schedule_drain(1.0, None).kill_s) == (NEVER, NEVER)
    assert release_by_s(1.0, None, step_s=1.0, checkpoint_s=60.0) == NEVER


def test_a_job_without_a_substitute_stops_as_late_as_its_save_allows() -> None:
    assert release_by_s(1000.0, 1120.0, step_s=0.0, checkpoint_s=0.0) == 1072.0
    assert release_by_s(1000.0, 1120.0, step_s=1.0, checkpoint_s=10.0) == 1050.0
    assert release_by_s(1000.0, 1120.0, step_s=1.0, checkpoint_s=600.0) == 1000.0, "at once"


def test_an_announced_loss_is_not_charged_to_a_budget() -> None:
    lost = Cause(Reason.AGENT_LOST, "agent on node a lost", 5.0, None, "a")
    found = excuse_announced_loss(lost, {"a": "node a is drained: disks"})
    assert found.reason is Reason.DRAINED and "disks" in found.summary
    verdict = decide_recovery(found, (), {}, window_s=600, refill_steps=10, now_s=5.0, step=3)
    assert verdict.is_recovery and verdict.backoff_s == 0
    assert excuse_announced_loss(lost, {"b": "node b is drained"}) == lost
    killed = Cause(Reason.RANK_EXIT, "rank 0 killed by signal 9", 5.0, 0, "a")
    assert excuse_announced_loss(killed, {"a": "node a is drained"}) == killed, "other failures are not excused"
