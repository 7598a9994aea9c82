"""Bytes as text: three digits, and never a power of ten."""

import pytest

from regroup.service.domain.byte_text import bytes_text, part_text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (999.4, "999 B"),
        (1023, "1.02 kB"),
        (999_499, "999 kB"),
        (999_999, "1 MB"),
        (1_500_000, "1.5 MB"),
        (3.1e8, "310 MB"),
        (4e12, "4 TB"),
        (2.5e18, "2.5e+03 PB"),
        (-1_500, "-1.5 kB"),
    ],
)
def test_a_number_has_the_unit_in_which_it_is_short(nbytes: float, text: str) -> None:
    assert bytes_text(nbytes) == text


def test_a_part_has_the_unit_of_the_whole() -> None:
    assert part_text(200_000_000, 4_000_000_000) == "0.2 of 4.0 GB"
    assert part_text(0, 12) == "0.0 of 12.0 B"
    assert part_text(999_999, 999_999) == "1.0 of 1.0 MB"
