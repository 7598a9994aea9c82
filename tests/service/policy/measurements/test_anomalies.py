"""Detection of slow outliers, independent of scale and without false alarms from noise."""

from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.domain.topology import Level
from regroup.service.policy.measurements.anomalies import LEAST, find_slow, level_crossed


def test_a_node_without_a_gpu_domain_is_its_own() -> None:
    here = ("z", "b", "r", "g")
    assert level_crossed(here, here) is Level.NODE
    assert level_crossed(("z", "b", "r", ""), ("z", "b", "r", "")) is Level.GPU_DOMAIN
    assert level_crossed(("", "", "", "g"), ("", "", "", "g")) is Level.NODE
    assert level_crossed(here, ("z", "b", "s", "h")) is Level.RACK
    assert level_crossed(here, ("y", "b", "r", "g")) is Level.ZONE


def test_a_slow_item_is_reported_with_its_share_of_the_median() -> None:
    assert find_slow({"a": 100, "b": 101, "c": 99, "d": 50}) == {"d": 50 / 99.5}


def test_two_items_have_no_outlier_and_fast_items_are_not_slow() -> None:
    assert find_slow({"a": 100, "b": 1}) == {}
    assert find_slow({"a": 100, "b": 100, "c": 100, "d": 900}) == {}


def test_a_small_difference_is_ignored_even_if_the_others_are_equal() -> None:
    assert find_slow({**dict.fromkeys(range(50), 100.0), 50: 90.0}) == {}


def test_a_slow_item_within_the_spread_of_all_is_ignored() -> None:
    assert find_slow({number: 100.0 + 40 * (number % 3) for number in range(9)} | {9: 80.0}) == {}


@settings(max_examples=50)
@given(
    st.lists(st.floats(0.97, 1.03), min_size=LEAST + 4, max_size=40),
    st.integers(1, 2),
    st.floats(0.1, 0.6),
    st.floats(1e-3, 1e12),
)
def test_a_few_much_slower_items_are_found_and_no_others(
    noise: list[float], few: int, share: float, scale: float
) -> None:
    speeds = {number: scale * each * (share if number < few else 1) for number, each in enumerate(noise)}
    assert set(find_slow(speeds)) == set(range(few))
    assert list(find_slow(speeds).values()) == sorted(find_slow(speeds).values())
