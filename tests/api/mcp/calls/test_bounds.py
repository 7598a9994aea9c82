"""Bounds of answers."""

import json
from typing import Any

import pytest

from regroup.api.mcp.calls.bounds import MAX_BYTES, bound, fits, size_of


def test_a_small_answer_stays_as_it_is() -> None:
    value = {"jobs": [{"id": "j", "step": 3, "loss": None, "is_ok": True}]}
    assert bound(value) == (value, [])


def test_a_long_list_is_cut_and_named() -> None:
    shown, left_out = bound({"jobs": [{"id": f"job-{number}"} for number in range(10_000)]})
    assert len(shown["jobs"]) == 200 and left_out == ["jobs: 10000 entries, the first 200 are shown"]


def test_a_long_text_is_cut_and_named() -> None:
    shown, left_out = bound({"error": {"traceback": "x" * 10**6}})
    assert len(shown["error"]["traceback"]) == 40_000
    assert left_out == ["error.traceback: 1000000 characters, the first 40000 are shown"]


@pytest.mark.parametrize(
    "value",
    [
        {"ranks": [{"rank": rank, "text": "stack\n" * 2000} for rank in range(16_384)]},
        {"texts": ["\x00" * 40_000] * 3},
        {"texts": ["東" * 30_000] * 3},
        {"map": {f"name-{number}": "y" * 500 for number in range(50_000)}},
        {"lone": "\ud800" * 100_000},
    ],
)
def test_each_answer_is_within_the_bound(value: Any) -> None:
    shown, left_out = bound(value)
    assert size_of(shown) <= MAX_BYTES and left_out
    json.dumps(shown)


def test_the_fields_of_a_record_stay() -> None:
    record = {f"field_{number}": "z" * 3000 for number in range(50)}
    shown, left_out = bound({"record": record})
    assert shown["record"].keys() == record.keys() and len(left_out) == 21 and left_out[-1] == "and 30 more"


def test_deep_data_is_cut() -> None:
    value: Any = "end"
    for _ in range(200):
        value = {"inner": [value]}
    shown, left_out = bound(value)
    assert "nested too deeply" in left_out[0] and size_of(shown) < 1000


def test_a_text_that_fits_is_never_cut() -> None:
    assert fits("a" * 40_000) and not fits("a" * 40_001) and not fits("\x00" * 24_000)
    for text in ("a" * 40_000, "é" * 20_000, "\x00" * 6000):
        assert fits(text) and bound({"text": text, "offset": 1})[1] == []
