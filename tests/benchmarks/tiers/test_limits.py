"""Tests of the rates of the machine."""

from pathlib import Path

from benchmarks.tiers.limits import dd_rate, memcpy_rate, rate, read_rate


def test_rates_are_those_of_the_median_call_after_the_first() -> None:
    calls: list[int] = []
    assert rate(1000, 3, lambda: calls.append(1)) > 0 and len(calls) == 4


def test_memory_and_disk(tmp_path: Path) -> None:
    assert memcpy_rate(1 << 20, 1) > 0
    assert dd_rate(tmp_path, 2 << 20, 1) > 0
    assert not list(tmp_path.iterdir()), "no file remains"
    (tmp_path / "a").write_bytes(bytes(3 << 20))
    assert read_rate([tmp_path / "a"], 1) > 0
