"""Settings of fuzz tests."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.inputs.fuzz import VARIABLE, fuzz_settings


def test_the_number_of_examples_is_fixed_without_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert len(_examples(7)) == len(_examples(7)) == 7
    assert _examples(7) == _examples(7)


def test_the_time_ends_a_test_with_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0.3")
    started_s = time.monotonic()
    assert len(_examples(7)) > 7
    assert 0.3 <= time.monotonic() - started_s < 10


def _examples(count: int) -> list[bytes]:
    found: list[bytes] = []

    @fuzz_settings(count)
    @given(st.binary(min_size=8, max_size=8))
    def collect(data: bytes) -> None:
        found.append(data)

    collect()
    return found
