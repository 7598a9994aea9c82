"""The rule that names what is slow: found whatever the others are like, and nobody named for noise."""

from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.policy.measurements.outliers import LEAST, find_slow


def test_the_slow_one_is_named_with_its_share_of_the_usual() -> None:
    assert find_slow({"a": 100, "b": 101, "c": 99, "d": 50}) == {"d": 50 / 99.5}


def test_of_two_nobody_is_the_odd_one_and_what_is_fast_is_not_slow() -> None:
    assert find_slow({"a": 100, "b": 1}) == {}
    assert find_slow({"a": 100, "b": 100, "c": 100, "d": 900}) == {}


def test_little_is_not_worth_telling_however_alike_the_others_are() -> None:
    assert find_slow({**dict.fromkeys(range(50), 100.0), 50: 90.0}) == {}


def test_where_all_differ_a_slow_one_is_one_of_them() -> None:
    assert find_slow({number: 100.0 + 40 * (number % 3) for number in range(9)} | {9: 80.0}) == {}


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(0.97, 1.03), min_size=LEAST + 4, max_size=40),
    st.integers(1, 2),
    st.floats(0.1, 0.6),
    st.floats(1e-3, 1e12),
)
def test_a_few_that_are_far_slower_are_found_and_no_other(
    noise: list[float], few: int, share: float, scale: float
) -> None:
    speeds = {number: scale * each * (share if number < few else 1) for number, each in enumerate(noise)}
    assert set(find_slow(speeds)) == set(range(few))
    assert list(find_slow(speeds).values()) == sorted(find_slow(speeds).values())
