"""Tests of statistics against values computed by hand or sampled from a known distribution."""

import random

import pytest

from benchmarks.trials.stats import median, percentile, ratio_of_totals, ratio_of_typical, summary


def noisy_pairs(ratio: float, blocks: int, seed: int, sigma: float = 0.05) -> list[tuple[float, float]]:
    """Return paired blocks whose arms share the machine's slow periods and differ by `ratio` and noise."""
    draw = random.Random(seed)
    pairs: list[tuple[float, float]] = []
    for _ in range(blocks):
        moment = draw.uniform(0.1, 0.3)
        pairs.append((ratio * moment * draw.gauss(1, sigma), moment * draw.gauss(1, sigma)))
    return pairs


def test_percentiles_are_linear_between_order_statistics() -> None:
    values = [4.0, 1.0, 3.0, 2.0]
    assert percentile(values, 0) == 1.0
    assert percentile(values, 100) == 4.0
    assert median(values) == 2.5
    assert percentile(values, 95) == pytest.approx(3.85)


def test_a_summary_of_one_trial_is_that_trial() -> None:
    assert summary([2.0]) == {"n": 1, "p50": 2.0, "p95": 2.0, "min": 2.0, "max": 2.0}


def test_no_trials_raise_an_error() -> None:
    with pytest.raises(ValueError, match="at least one trial"):
        median([])


def test_the_ratio_weights_blocks_by_their_length() -> None:
    assert ratio_of_totals([(1.0, 1.0), (6.0, 3.0)]).value == pytest.approx(7 / 4)
    assert ratio_of_typical([(1.0, 1.0), (6.0, 3.0)]).value == pytest.approx(1.5)


def test_a_rare_stall_changes_the_totals_and_not_the_typical_block() -> None:
    pairs = [(1.0, 1.0)] * 99 + [(11.0, 1.0)]
    assert ratio_of_totals(pairs).value == pytest.approx(1.1)
    assert ratio_of_typical(pairs).value == 1.0


def test_an_interval_is_reproducible_and_needs_two_blocks() -> None:
    pairs = noisy_pairs(1.02, 50, seed=1)
    assert ratio_of_totals(pairs, seed=3) == ratio_of_totals(pairs, seed=3)
    with pytest.raises(ValueError, match="at least two"):
        ratio_of_totals(pairs[:1])


@pytest.mark.parametrize("estimator", [ratio_of_totals, ratio_of_typical])
def test_the_interval_covers_the_true_value_at_about_its_nominal_rate(estimator) -> None:
    covered = sum(
        interval.low <= 1.03 <= interval.high
        for interval in (estimator(noisy_pairs(1.03, 80, seed), resamples=300) for seed in range(100))
    )
    assert covered >= 86  # 95 expected; 86 or fewer has a probability below 1 in 1,000


def test_pairing_excludes_slow_periods_of_the_machine_from_the_interval() -> None:
    pairs = noisy_pairs(1.0, 150, seed=5, sigma=0.02)
    draw = random.Random(0)
    second = [b for _, b in pairs]
    draw.shuffle(second)
    unpaired = list(zip([a for a, _ in pairs], second, strict=True))
    assert ratio_of_totals(pairs).half_width < ratio_of_totals(unpaired).half_width / 3
