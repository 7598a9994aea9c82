"""Deadlines as times of the clock."""

from datetime import datetime

import pytest

from regroup.api.cli.common.deadlines import until_deadline

NOW = datetime(2026, 3, 1, 16, 30, 15)


@pytest.mark.parametrize(
    ("text", "seconds"), [("17:00", 1785.0), ("16:30", 86_385.0), ("9:05", 59_685.0), (" 17:00 ", 1785.0)]
)
def test_a_time_of_the_clock_is_its_next_occurrence(text: str, seconds: float) -> None:
    assert until_deadline(text, NOW) == seconds


@pytest.mark.parametrize("text", ["15m", "120", "24:00", "17:60", "17:00:00"])
def test_any_other_text_stays_for_the_server(text: str) -> None:
    assert until_deadline(text, NOW) == text
