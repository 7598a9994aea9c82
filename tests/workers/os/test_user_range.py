"""Ranges of user ids: their text, their limits, and the order in which a job tries them."""

import pytest

from regroup.workers.os.user_range import UserRange, parse_user_range


def test_a_range_has_a_first_and_a_last_id() -> None:
    assert parse_user_range("200000-265535") == UserRange(200_000, 265_535)
    assert parse_user_range("5000-5000").size == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("200000", "is not a range of user ids"),
        ("a-b", "is not a range of user ids"),
        ("-1-5", "is not a range of user ids"),
        ("0-65535", "must be within 1000"),
        ("3000-2000", "must be within 1000"),
        ("4294967290-4294967295", "must be within 1000"),
        ("60000-70000", "contains 65534"),
    ],
)
def test_a_range_with_ids_that_ranks_must_not_have_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_user_range(text)


def test_a_job_tries_each_id_once_and_in_the_same_order_on_every_node() -> None:
    users = UserRange(2000, 2009)
    order = list(users.candidates("job_1"))
    assert sorted(order) == list(range(2000, 2010))
    assert order == list(users.candidates("job_1"))
    assert len({next(users.candidates(f"job_{number}")) for number in range(100)}) == 10
