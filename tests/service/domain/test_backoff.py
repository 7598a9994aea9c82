"""The delay doubles with each failure, up to a limit."""

from regroup.service.domain.backoff import backoff_s


def test_each_delay_is_twice_as_long_up_to_the_limit() -> None:
    delays = [backoff_s(failures, first_s=0.5, longest_s=3.0) for failures in (-1, 0, 1, 2, 3, 4, 10**9)]
    assert delays == [0.0, 0.0, 0.5, 1.0, 2.0, 3.0, 3.0]
