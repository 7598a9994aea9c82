"""A controller with many live jobs stores their steps less often."""

import pytest

from regroup.service.policy.sync_pace import SyncPace


@pytest.mark.parametrize(
    ("live", "gather_s", "recheck_s"), [(0, 0.0, 1.0), (100, 0.0, 1.0), (1000, 12.5, 4.0), (5000, 60.0, 20.0)]
)
def test_the_pace_follows_the_number_of_live_jobs(live: int, gather_s: float, recheck_s: float) -> None:
    pace = SyncPace(live)
    assert (pace.gather_s, pace.recheck_s) == (gather_s, recheck_s)
    assert SyncPace(10**6).gather_s == SyncPace(10**6).recheck_s == 60.0


def test_only_progress_that_is_gathered_waits_for_that_of_other_jobs() -> None:
    assert SyncPace(100).delay_s == 0.0
    assert 0.0 < SyncPace(101).delay_s == SyncPace(10**6).delay_s <= 0.5


def test_elastic_jobs_search_less_often_when_there_are_many() -> None:
    assert [SyncPace(live).search_s for live in (1, 500, 5000, 10**6)] == [5.0, 5.0, 50.0, 60.0]
