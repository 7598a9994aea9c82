"""Tests of the figures that the overhead benchmark computes from rounds."""

from typing import Any

import pytest

from benchmarks.overhead import result


def run_of(supervised: float, twin: float, stall_s: float = 0.0, rounds: int = 40) -> dict[str, Any]:
    moments = [0.2 if number % 2 else 0.3 for number in range(rounds)]
    return {
        "stall_s": stall_s,
        "max_loss_difference": 0.0,
        "rounds": [{"supervised": m * supervised, "bare": m, "bare_twin": m * twin} for m in moments],
    }


def test_the_ratio_compares_both_bare_arms_and_the_deviation_compares_the_twin() -> None:
    document = result([run_of(supervised=1.03, twin=1.02)])
    assert document["ratio"] == pytest.approx(1.03 / 1.01)
    assert document["aa_deviation"] == pytest.approx(0.02)
    assert document["ci_half_width"] == pytest.approx(0.0, abs=1e-9)
    assert document["steps_per_arm"] == 80


def test_a_faster_twin_deviates_as_much_as_a_slower_one() -> None:
    assert result([run_of(supervised=1.0, twin=0.98)])["aa_deviation"] == pytest.approx(0.02)


def test_the_stall_is_a_fraction_of_the_supervised_arms_own_time() -> None:
    seconds = 2 * 40 * 0.25  # forty blocks of two steps, each 0.25 s on average
    document = result([run_of(1.0, 1.0, stall_s=0.1), run_of(1.0, 1.0, stall_s=0.3)])
    assert document["snapshot_stall_fraction"] == pytest.approx(0.4 / (2 * seconds))
