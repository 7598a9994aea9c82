import pytest

from regroup.api.live.formatting import ago, duration, layout_text, number


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.021, "21 ms"),
        (0.0034, "3 ms"),
        (0.8, "0.8 s"),
        (9.96, "10.0 s"),
        (12.4, "12 s"),
        (59.7, "1 m"),
        (200, "3 m 20 s"),
        (7500, "2 h 5 m"),
        (86400 * 3 + 4 * 3600, "3 d 4 h"),
        (-2.0, "-2.0 s"),
    ],
)
def test_durations_have_few_digits_and_a_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_relative_times() -> None:
    assert ago(100.0, 300.0) == "3 m 20 s ago"
    assert ago(101.0, 100.0) == "0 s ago"  # clocks of two machines differ
    assert ago(None, 100.0) == "-"


def test_numbers_have_a_letter_for_their_thousands() -> None:
    assert [number(v) for v in (950, 12_345, 1_240_000, 3e9)] == ["950", "12.3k", "1.24M", "3G"]


def test_layouts_show_only_degrees_above_one() -> None:
    assert layout_text({"dp_replicate": 2, "dp_shard": 4, "tp": 1}) == "dp_replicate=2 × dp_shard=4"
    assert layout_text({"dp_shard": 1}) == "1 rank"
