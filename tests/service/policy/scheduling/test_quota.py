"""Devices that projects may borrow."""

import pytest

from regroup.service.policy.scheduling.quota import Quota, QuotaUsage, WaitCause

QUOTAS = {"a": Quota(guaranteed=2), "b": Quota(guaranteed=4)}


def usage(**firm: int) -> QuotaUsage:
    """Return the usage of projects whose devices cannot be preempted."""
    used = QuotaUsage(QUOTAS)
    for project, count in firm.items():
        used.add(project, count, count)
    return used


@pytest.mark.parametrize(("of_b", "is_blocked"), [(0, False), (4, False), (6, False), (7, True)])
def test_others_borrow_what_no_project_is_guaranteed_and_none_holds(of_b: int, is_blocked: bool) -> None:
    # Of ten devices, six are guaranteed. `a` wants to borrow two of the other four permanently.
    block = usage(b=of_b).find_block("a", 4, 4, free=10 - of_b, capacity=10)
    assert (block is not None) == is_blocked
    if block is not None:
        assert block.reason is WaitCause.PROJECT_QUOTA
        assert "1 devices are not guaranteed to any project" in block.message


def test_a_project_that_no_quota_names_has_no_guarantee() -> None:
    used = usage(c=3)
    assert used.would_borrow("c", 1)
    assert used.borrowed("c") == 3
    assert not used.would_borrow("a", 2)
    assert used.would_borrow("a", 3)
