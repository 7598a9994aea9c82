"""Token buckets: bursts, the rate in the long run, and the time to wait."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regroup.service.policy.access.rate import Bucket, RateLimit, acquire_request, is_full

LIMIT = RateLimit(per_s=2.0, burst=3)


def test_a_burst_is_allowed_then_requests_wait() -> None:
    bucket: Bucket | None = None
    for _ in range(3):
        bucket, wait_s = acquire_request(bucket, LIMIT, 10.0)
        assert wait_s == 0.0
    bucket, wait_s = acquire_request(bucket, LIMIT, 10.0)
    assert wait_s == pytest.approx(0.5)
    bucket, wait_s = acquire_request(bucket, LIMIT, 10.25)
    assert wait_s == pytest.approx(0.25), "a refused request takes nothing"
    _, wait_s = acquire_request(bucket, LIMIT, 10.5)
    assert wait_s == 0.0


def test_a_pause_fills_the_bucket_but_not_more() -> None:
    empty = Bucket(0.0, 0.0)
    assert not is_full(empty, LIMIT, 1.4) and is_full(empty, LIMIT, 1.5)
    bucket, _ = acquire_request(empty, LIMIT, 1e6)
    assert bucket == Bucket(2.0, 1e6)


def test_a_clock_that_does_not_move_gives_nothing() -> None:
    bucket = Bucket(0.5, 10.0)
    assert acquire_request(bucket, LIMIT, 9.0) == (Bucket(0.5, 9.0), pytest.approx(0.25))


@given(
    st.lists(st.floats(0.0, 2.0), min_size=1, max_size=200),
    st.floats(0.5, 50.0),
    st.integers(1, 20),
)
def test_no_sequence_exceeds_the_rate(pauses: list[float], per_s: float, burst: int) -> None:
    limit, bucket, now_s, allowed = RateLimit(per_s, burst), None, 0.0, 0
    for pause in pauses:
        now_s += pause
        bucket, wait_s = acquire_request(bucket, limit, now_s)
        allowed += wait_s == 0.0
    assert allowed <= burst + per_s * now_s + 1e-6
