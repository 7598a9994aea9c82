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
