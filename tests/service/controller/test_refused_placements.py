"""A job whose devices the cluster refuses is tried again at growing intervals, and states why."""

from regroup.service.controller.refused_placements import RefusedPlacements, retry_delay_s
from tests.support.doubles.fake_clock import Clock


def test_each_delay_is_twice_as_long_up_to_five_minutes() -> None:
    assert [retry_delay_s(count) for count in (1, 2, 3, 9, 10, 10**6)] == [1, 2, 4, 256, 300, 300]


def test_a_job_may_be_placed_again_after_its_delay() -> None:
    clock = Clock()
    clock.now_s = 1000.0
    refused = RefusedPlacements(clock)
    refused.record("a", "node-1 does not hold 2 CPU")
    refused.record("a", "node-1 does not hold 2 CPU")
    found = refused.condition("a")
    assert found is not None and found.reason == "placement_refused"
    assert "2 times in a row" in found.message and "node-1 does not hold 2 CPU" in found.message
    assert "the next attempt is at 1970-01-01T00:16:42Z" in found.message
    assert refused.condition("b") is None
    clock.now_s += 2.0
    assert refused.condition("a") is None
    refused.record("a", "again")
    assert "3 times" in (refused.condition("a") or found).message, "the delay continues to grow"
    refused.forget("a")
    refused.record("a", "again")
    assert "once" in (refused.condition("a") or found).message
    refused.retain({"b"})
    assert refused.condition("a") is None
